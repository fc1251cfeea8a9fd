"""A job of a FIFO queue: leaves a row for each run, by which its group's order can be read."""

import os
import time

from redrive import clients
from redrive.worker import Job, Worker


def run(job: Job) -> dict:
    if job.attempt < job.payload.get("succeed_on_attempt", 1):
        raise RuntimeError("told to fail")
    effect = {
        "id": {"S": f"group:{job.payload['group']}"},
        "record": {"S": f"effect#{time.time_ns()}"},
        "job": {"S": job.key},
    }
    clients.shared("dynamodb").put_item(TableName=os.environ["REDRIVE_JOBS_TABLE"], Item=effect)
    return {"group": job.payload["group"]}


handler = Worker(run)

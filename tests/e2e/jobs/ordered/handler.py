"""A job of a FIFO queue: leaves a row for each run, by which its group's order can be read."""

import os
import time

from redrive import PermanentError, clients
from redrive.worker import Job, Worker


def run(job: Job) -> dict:
    if job.attempt < job.payload.get("succeed_on_attempt", 1):
        raise RuntimeError("told to fail")
    if broken := job.payload.get("dies_unless_mended"):
        die_unless_mended(broken)
    effect = {
        "id": {"S": f"group:{job.payload['group']}"},
        "record": {"S": f"effect#{time.time_ns()}"},
        "job": {"S": job.key},
    }
    clients.shared("dynamodb").put_item(TableName=os.environ["REDRIVE_JOBS_TABLE"], Item=effect)
    return {"group": job.payload["group"]}


def die_unless_mended(what: str) -> None:
    table = os.environ["REDRIVE_JOBS_TABLE"]
    mended = {"id": {"S": f"mended:{what}"}, "record": {"S": "mended"}}
    found = clients.shared("dynamodb").batch_get_item(RequestItems={table: {"Keys": [mended]}})
    if not found["Responses"][table]:
        raise PermanentError(f"{what} is broken")


handler = Worker(run)

"""A job of a function that may run for 900 s: works, and ends or freezes its process when told to.

`run_number` is how often this job was started, so that it can be told to die in its first runs
alone.
"""

import os
import signal
import time

from redrive import clients
from redrive.worker import Job, Worker


def run(job: Job) -> dict:
    run_number = note(job, "start")
    if run_number <= job.payload.get("dying_runs", 0):
        time.sleep(job.payload["dies_after_seconds"])
        os.kill(os.getpid(), signal.SIGKILL)
    if run_number <= job.payload.get("frozen_runs", 0):
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(job.payload.get("seconds", 0))
    note(job, "effect")
    return {"run_number": run_number}


def note(job: Job, what: str) -> int:
    """Leaves a row of when and where it happened; returns how often it has."""
    answer = clients.shared("dynamodb").update_item(
        TableName=os.environ["REDRIVE_JOBS_TABLE"],
        Key={"id": {"S": job.id}, "record": {"S": what}},
        UpdateExpression="ADD times :one SET moments = list_append(if_not_exists(moments, :none), "
        ":moment), pids = list_append(if_not_exists(pids, :none), :pid)",
        ExpressionAttributeValues={
            ":one": {"N": "1"},
            ":none": {"L": []},
            ":moment": {"L": [{"N": str(time.time())}]},
            ":pid": {"L": [{"N": str(os.getpid())}]},
        },
        ReturnValues="UPDATED_NEW",
    )
    return int(answer["Attributes"]["times"]["N"])


handler = Worker(run)

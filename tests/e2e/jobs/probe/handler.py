"""Does what its payload says, and leaves a row in the jobs table for each run that had its
effect.
"""

import os
import sys
import time

from redrive import PermanentError, RetryLater, clients
from redrive.worker import Job, Worker


def run(job: Job) -> dict:
    if job.attempt < job.payload.get("succeed_on_attempt", 1):
        fail(job.payload)
    time.sleep(job.payload.get("seconds", 0))
    effect = {
        "id": {"S": job.id},
        "record": {"S": f"effect#{time.time_ns()}"},
        "attempt": {"N": str(job.attempt)},
    }
    clients.shared("dynamodb").put_item(TableName=os.environ["REDRIVE_JOBS_TABLE"], Item=effect)
    return {"attempt": job.attempt}


def fail(payload: dict) -> None:
    message = payload.get("message", "told to fail")
    match payload.get("fail_by"):
        case "PermanentError":
            raise PermanentError(message)
        case "RetryLater":
            raise RetryLater(payload["retry_seconds"])
        case "SystemExit":
            sys.exit(1)
        case _:
            raise RuntimeError(message)


handler = Worker(run)

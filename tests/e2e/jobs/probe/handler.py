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
    if broken := job.payload.get("dies_unless_mended"):
        die_unless_mended(broken, job.payload.get("cause", "Broken"))
    time.sleep(job.payload.get("seconds", 0))
    effect = {
        "id": {"S": job.id},
        "record": {"S": f"effect#{time.time_ns()}"},
        "attempt": {"N": str(job.attempt)},
    }
    clients.shared("dynamodb").put_item(TableName=os.environ["REDRIVE_JOBS_TABLE"], Item=effect)
    return {"attempt": job.attempt}


def die_unless_mended(what: str, cause: str) -> None:
    """For good, under the name of the cause, until there is a row that says that it is mended."""
    table = os.environ["REDRIVE_JOBS_TABLE"]
    mended = {"id": {"S": f"mended:{what}"}, "record": {"S": "mended"}}
    found = clients.shared("dynamodb").batch_get_item(RequestItems={table: {"Keys": [mended]}})
    if not found["Responses"][table]:
        raise type(cause, (PermanentError,), {})(f"{what} is broken")


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

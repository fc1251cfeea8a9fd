"""Does what its payload says, and leaves a mail in the sink for each run that had its effect."""

import os
import sys
import time
from functools import cache

import boto3

from redrive import PermanentError, RetryLater, clients
from redrive.worker import Job, Worker


@cache
def ses():
    return boto3.client("sesv2", config=clients.config(threads=10, attempts=1))


def run(job: Job) -> dict:
    if job.attempt < job.payload.get("succeed_on_attempt", 1):
        fail(job.payload.get("fail_by", "RuntimeError"), job.payload)
    time.sleep(job.payload.get("seconds", 0))
    leave_mail(job.key, f"attempt {job.attempt}")
    return {"attempt": job.attempt}


def fail(how: str, payload: dict) -> None:
    match how:
        case "PermanentError":
            raise PermanentError(payload.get("message", "told to fail for good"))
        case "RetryLater":
            raise RetryLater(payload["retry_seconds"])
        case "SystemExit":
            sys.exit(1)
        case _:
            raise RuntimeError(payload.get("message", "told to fail"))


def leave_mail(key: str, subject: str) -> None:
    ses().send_email(
        FromEmailAddress=os.environ["SENDER"],
        Destination={"ToAddresses": ["probe@example.com"]},
        Content={
            "Simple": {
                "Subject": {"Data": subject},
                "Body": {"Text": {"Data": subject}},
                "Headers": [{"Name": "X-Email-Id", "Value": key}],
            }
        },
    )


handler = Worker(run)

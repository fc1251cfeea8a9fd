"""The Lambda of `send_email`: wiring only."""

import os
from functools import cache
from typing import TYPE_CHECKING

import boto3

from redrive import clients
from redrive.worker import Job, Worker
from send_email import mail

if TYPE_CHECKING:
    from mypy_boto3_sesv2 import SESV2Client


@cache
def ses() -> "SESV2Client":
    # One attempt: botocore would repeat a call that timed out after SES took the mail. Our own
    # retry asks the idempotency record first.
    return boto3.client("sesv2", config=clients.config(threads=10, attempts=1))


def run(job: Job) -> dict[str, str]:
    return mail.send(
        job.payload,
        ses=ses(),
        sender=os.environ["SENDER"],
        email_id=job.key,
        token=job.token,
    )


handler = Worker(run)

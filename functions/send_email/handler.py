"""The Lambda of `send_email`: wiring only."""

import os

from redrive import clients
from redrive.worker import Job, Worker
from send_email import mail


def run(job: Job) -> dict[str, str]:
    return mail.send(
        job.payload,
        # One attempt: botocore would repeat a call that timed out after SES took the mail. Our own
        # retry asks the idempotency record first.
        ses=clients.shared("sesv2", attempts=1),
        sender=os.environ["SENDER"],
        email_id=job.key,
        token=job.token,
    )


handler = Worker(run)

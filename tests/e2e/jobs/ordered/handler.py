"""A job of a FIFO queue: notes in the sink in which order its runs came."""

import os
from functools import cache

import boto3

from redrive import clients
from redrive.worker import Job, Worker


@cache
def ses():
    return boto3.client("sesv2", config=clients.config(threads=10, attempts=1))


def run(job: Job) -> dict:
    if job.attempt < job.payload.get("succeed_on_attempt", 1):
        raise RuntimeError("told to fail")
    ses().send_email(
        FromEmailAddress=os.environ["SENDER"],
        Destination={"ToAddresses": [f"{job.payload['group']}@example.com"]},
        Content={
            "Simple": {
                "Subject": {"Data": job.payload["group"]},
                "Body": {"Text": {"Data": job.key}},
                "Headers": [{"Name": "X-Email-Id", "Value": job.key}],
            }
        },
    )
    return {"group": job.payload["group"]}


handler = Worker(run)

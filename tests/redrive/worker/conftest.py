"""A worker on a bench of its own: an in-memory SQS, moto's DynamoDB, and a clock that tests
move.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

import boto3
import pytest
from moto import mock_aws

from redrive.retry import RetryPolicy
from redrive.testing import (
    Delivery,
    InMemoryQueue,
    InMemorySqs,
    ManualClock,
    deliver,
)
from redrive.worker import Job, Worker
from redrive.worker.settings import Settings

JOB = "work"


@dataclass
class Bench:
    """Everything around one worker. `runs` are the jobs that its function was given."""

    settings: Settings
    queue: InMemoryQueue
    dead: InMemoryQueue
    sqs: InMemorySqs
    dynamodb: Any
    clock: ManualClock
    runs: list[Job] = field(default_factory=list)

    def worker(self, function: Callable[[Job], Any] = lambda job: None, **settings: Any) -> Worker:
        def recorded(job: Job) -> Any:
            self.runs.append(job)
            return function(job)

        return Worker(
            recorded,
            settings=replace(self.settings, **settings),
            sqs=self.sqs,
            dynamodb=self.dynamodb,
            random=Random(1),
        )

    def send(self, body: Any, **more: Any) -> str:
        text = body if isinstance(body, str) else json.dumps(body)
        sent = self.sqs.send_message(QueueUrl=self.queue.url, MessageBody=text, **more)
        return sent["MessageId"]

    def deliver(self, worker: Worker, **options: Any) -> Delivery:
        return deliver(worker, self.queue, **options)

    def deliver_until_settled(self, worker: Worker, limit: int = 50) -> None:
        """Plays the poller, and lets time pass, until nothing is left in the queue."""
        for _ in range(limit):
            if not len(self.queue):
                return
            self.deliver(worker)
            self.clock.advance(timedelta(hours=1))
        raise AssertionError(f"{len(self.queue)} messages are not settled")

    def dead_letters(self) -> list[dict[str, Any]]:
        """All dead letters, as an operator receives them."""
        received = self.sqs.receive_message(
            QueueUrl=self.dead.url,
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        return received.get("Messages", [])

    def causes(self) -> dict[str, dict[str, Any]]:
        """The causes of all dead letters, by body."""
        return {
            letter["Body"]: json.loads(letter["MessageAttributes"]["redrive"]["StringValue"])[
                "cause"
            ]
            for letter in self.dead_letters()
        }

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.dynamodb.scan(TableName=table)["Items"]

    def delays(self) -> list[int]:
        """The backoffs that were set, in seconds, in order."""
        return [
            entry["VisibilityTimeout"]
            for operation, request in self.sqs.calls
            if operation == "change_message_visibility_batch"
            for entry in request["Entries"]
        ]

    def ids_run(self) -> list[str]:
        return [job.key for job in self.runs]


@pytest.fixture(scope="session")
def moto_dynamodb():
    with pytest.MonkeyPatch.context() as environment, mock_aws():
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield boto3.client("dynamodb", region_name="eu-west-1")


@pytest.fixture
def dynamodb(moto_dynamodb):
    _create_table(moto_dynamodb, "idempotency", "id")
    _create_table(moto_dynamodb, "jobs", "id", "record")
    yield moto_dynamodb
    for table in moto_dynamodb.list_tables()["TableNames"]:
        moto_dynamodb.delete_table(TableName=table)


@pytest.fixture(autouse=True)
def _logger_as_in_a_new_environment(capsys):
    # Powertools keeps a logger's handler, and with it the stdout of the test that came first.
    logger = logging.getLogger(JOB)
    logger.handlers.clear()
    for mark in ("init", "powertools_handler"):
        vars(logger).pop(mark, None)


def _create_table(client: Any, name: str, *keys: str) -> None:
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[
            {"AttributeName": key, "KeyType": kind}
            for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)
        ],
    )


def _bench(dynamodb: Any, suffix: str) -> Bench:
    clock = ManualClock()
    dead = InMemoryQueue(f"work-dead{suffix}", clock=clock)
    queue = InMemoryQueue(
        f"work{suffix}",
        visibility_timeout=timedelta(minutes=6),
        max_receive_count=480,
        dead_letter_queue=dead,
        clock=clock,
    )
    settings = Settings(
        stage="test",
        job=JOB,
        key="id",
        queue_url=queue.url,
        dead_letter_queue_url=dead.url,
        idempotency_table="idempotency",
        jobs_table="jobs",
        p99_seconds=1,
        batch_concurrency=4,
        retry=RetryPolicy(max_attempts=3, backoff_base=10, backoff_cap=900),
    )
    return Bench(settings, queue, dead, InMemorySqs(queue, dead), dynamodb, clock)


@pytest.fixture
def bench(dynamodb):
    return _bench(dynamodb, "")


@pytest.fixture
def fifo_bench(dynamodb):
    return _bench(dynamodb, ".fifo")


@pytest.fixture
def lines(capsys):
    """What the worker printed since the last call: its log lines and metrics, parsed."""

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return read

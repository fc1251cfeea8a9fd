"""A worker on a bench of its own: an in-memory SQS, moto's DynamoDB, and a clock that tests
move.
"""

import json
import logging
import threading
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
from redrive.worker.outcome import Contract
from redrive.worker.settings import Settings
from tests.redrive.worker.partiql import batch_execute_statement

JOB = "work"


class Died(BaseException):
    """The process has been killed: no code of it runs on, and no call of it is made."""


class Life:
    """A process, as long as it lives."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.calls_left: int | None = None
        self.died_before: str | None = None

    def spend_call(self, name: str) -> None:
        """Raises Died instead of a call that the process does not live to make."""
        if self.calls_left == 0 and not self.ended.is_set():
            self.died_before = name
            self.ended.set()
        if self.ended.is_set():
            raise Died
        if self.calls_left is not None:
            self.calls_left -= 1

    def end(self) -> None:
        self.ended.set()
        raise Died

    def client(self, client: Any) -> Any:
        """The client, for as long as the process lives."""
        return MortalClient(client, self)


class MortalClient:
    def __init__(self, client: Any, life: Life) -> None:
        self._client, self._life = client, life

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return self._mortal(name, attribute) if callable(attribute) else attribute

    def _mortal(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any, **request: Any) -> Any:
            self._life.spend_call(name)
            return call(*arguments, **request)

        return checked


@dataclass
class Bench:
    """Everything around one worker. `runs` are the jobs that its function was given."""

    settings: Settings
    queue: InMemoryQueue
    dead: InMemoryQueue
    sqs: InMemorySqs
    dynamodb: Any
    clock: ManualClock
    group_commit: bool
    runs: list[Job] = field(default_factory=list)

    def worker(self, function: Callable[[Job], Any] = lambda job: None, **settings: Any) -> Worker:
        def recorded(job: Job) -> Any:
            self.runs.append(job)
            return function(job)

        self.life = Life()
        return Worker(
            recorded,
            settings=replace(self.settings, **settings),
            sqs=self.life.client(self.sqs),
            dynamodb=self.life.client(self.dynamodb),
            random=Random(1),
            clock=self.clock,
            group_commit=self.group_commit,
        )

    def send(self, body: Any, **more: Any) -> str:
        text = body if isinstance(body, str) else json.dumps(body)
        sent = self.sqs.send_message(QueueUrl=self.queue.url, MessageBody=text, **more)
        return sent["MessageId"]

    def deliver(self, worker: Worker, **options: Any) -> Delivery:
        return deliver(worker, self.queue, **options)

    def deliver_mortal(self, worker: Worker, **options: Any) -> Delivery | None:
        """As `deliver`; None where the process was killed in it."""
        try:
            return self.deliver(worker, **options)
        except Died:
            return None

    def kill_during(self, id_: str, *, together: int = 1, **options: Any) -> None:
        """Delivers a batch to a process that this job kills, while so many jobs run."""
        all_run = threading.Barrier(together)

        def run(job: Job) -> None:
            all_run.wait(20)
            if job.key == id_:
                self.life.end()
            assert self.life.ended.wait(20)
            raise Died

        worker = self.worker(run, batch_concurrency=together)
        assert self.deliver_mortal(worker, **options) is None

    def pass_time(self, by: timedelta) -> None:
        """Lets time pass for the queue, and for the claims in the table."""
        self.clock.advance(by)
        for record in self.rows("idempotency"):
            if "in_progress_expiration" in record:
                until = int(record["in_progress_expiration"]["N"]) - by / timedelta(milliseconds=1)
                record["in_progress_expiration"] = {"N": str(int(until))}
                self.dynamodb.put_item(TableName="idempotency", Item=record)

    def deliver_until_settled(self, worker: Worker, limit: int = 50) -> None:
        """Plays the poller, and lets time pass, until nothing is left in the queue."""
        for _ in range(limit):
            if not len(self.queue):
                return
            self.deliver(worker)
            self.pass_time(timedelta(hours=1))
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
        client = boto3.client("dynamodb", region_name="eu-west-1")
        environment.setattr(
            client,
            "batch_execute_statement",
            lambda Statements: batch_execute_statement(client, Statements),  # noqa: N803
        )
        yield client


@pytest.fixture
def dynamodb(moto_dynamodb):
    _create_table(moto_dynamodb, "idempotency", "id")
    _create_table(moto_dynamodb, "jobs", "id", "record")
    yield moto_dynamodb
    for table in moto_dynamodb.list_tables()["TableNames"]:
        moto_dynamodb.delete_table(TableName=table)


@pytest.fixture(autouse=True)
def _logger_as_in_a_new_environment(capsys):
    forget_logger(JOB)


def forget_logger(name: str) -> None:
    """Powertools keeps a logger's handler, and with it the stdout of the test that came first."""
    logger = logging.getLogger(name)
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


@pytest.fixture(params=[True, False], ids=["group_commit", "one_by_one"])
def group_commit(request):
    return request.param


def bench_of(dynamodb: Any, suffix: str, *, group_commit: bool) -> Bench:
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
        # No lease unless a test asks for one: then nothing depends on the time.
        lease_seconds=360,
        visibility_timeout_seconds=360,
        p99_seconds=1,
        max_kills=3,
        batch_concurrency=4,
        contract=Contract(
            retry=RetryPolicy(max_attempts=3, backoff_base=10, backoff_cap=900),
            timeout_seconds=60,
            retention_seconds=4 * 24 * 3600,
            max_receives=480,
        ),
    )
    sqs = InMemorySqs(queue, dead)
    return Bench(settings, queue, dead, sqs, dynamodb, clock, group_commit)


@pytest.fixture
def bench(dynamodb, group_commit):
    return bench_of(dynamodb, "", group_commit=group_commit)


@pytest.fixture
def fifo_bench(dynamodb, group_commit):
    return bench_of(dynamodb, ".fifo", group_commit=group_commit)


@pytest.fixture
def lines(capsys):
    """What the worker printed since the last call: its log lines and metrics, parsed."""

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return read

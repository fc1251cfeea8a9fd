"""An operator's desk: a job whose messages die, in memory, and the functions that replay them."""

import json
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from redrive import PermanentError
from redrive.message import iso_time
from redrive.testing import lambda_context
from replay.event import ACTIONS, READING
from replay.function import ReplayFunction
from replay.settings import Settings
from tests.redrive.test_publisher import Parameters
from tests.redrive.worker.conftest import Bench, bench_of, dynamodb, forget_logger, moto_dynamodb

__all__ = ["dynamodb", "moto_dynamodb"]

EVENT = {"job": "work", "reason": "a test"}


class InvokedLater:
    """Lambda's `invoke`, which keeps the events for the test to deliver."""

    def __init__(self):
        self.events = []

    def invoke(self, FunctionName, InvocationType, Payload):  # noqa: N803
        assert (FunctionName, InvocationType) == ("worker", "Event")
        self.events.append(json.loads(Payload))


@dataclass
class Desk:
    bench: Bench
    invoked: InvokedLater = field(default_factory=InvokedLater)
    max_replays: int = 3

    def function(self, actions=ACTIONS, sqs=None, **options: Any) -> ReplayFunction:
        settings = Settings(
            stage="test",
            jobs=("work", "other"),
            idempotency_table="idempotency",
            jobs_table="jobs",
            lease_seconds=options.pop("lease_seconds", 60),
        )
        return ReplayFunction(
            actions,
            settings=settings,
            sqs=sqs or self.bench.sqs,
            dynamodb=options.pop("dynamodb", self.bench.dynamodb),
            ssm=Parameters({"/redrive/test/work": self.parameter}),
            lambda_=self.invoked,
            **options,
        )

    @property
    def parameter(self) -> str:
        return json.dumps(
            {
                "version": 1,
                "job": "work",
                "key": "id",
                "queues": {"normal": self.bench.queue.url},
                "dead_letter_queue": self.bench.dead.url,
                "fifo": self.bench.queue.fifo,
                "limits": {"max_message_bytes": 1_048_576, "max_replays": self.max_replays},
            }
        )

    def ask(self, function: ReplayFunction | None = None, **event: Any) -> dict[str, Any]:
        return (function or self.function())(EVENT | event, lambda_context())

    def inspect(self, **event: Any) -> dict[str, Any]:
        return self.ask(self.function(READING), **event)

    def play_hops(self, function: ReplayFunction, limit: int = 50) -> dict[str, Any]:
        """Delivers the asynchronous events until there is none; the last answer."""
        answer: dict[str, Any] = {}
        for _ in range(limit):
            if not self.invoked.events:
                return answer
            answer = function(self.invoked.events.pop(0), lambda_context(timedelta(minutes=15)))
        raise AssertionError("it goes on for ever")

    # --- dead letters -----------------------------------------------------------------------------

    def die(self, *ids: Any, error: Exception | None = None, **payload: Any) -> None:
        """Publishes jobs and has a worker dead-letter them."""
        for id_ in ids:
            self.bench.send({"id": id_, **payload})
        self.run(error or PermanentError("no such customer"))

    def run(self, error: BaseException | None = None) -> None:
        """Delivers all that is in the queue to a worker whose job succeeds, or raises."""

        def work(job):
            if error:
                raise error
            return {"done": True}

        worker = self.bench.worker(work, batch_concurrency=1)  # they die in order
        for _ in range(200):
            if not self.bench.deliver(worker).received:
                return

    def put_dead(self, count: int, **more: Any) -> None:
        """Letters that somebody else sent there: many at once."""
        for number in range(count):
            self.bench.sqs.send_message(
                QueueUrl=self.bench.dead.url, MessageBody=json.dumps({"id": number}), **more
            )

    def waiting(self) -> list[Any]:
        """The ids of the messages in the job's queue, in order."""
        return [json.loads(one.body)["id"] for one in self.bench.queue.messages]

    def dead(self) -> list[Any]:
        return [json.loads(one.body)["id"] for one in self.bench.dead.messages]

    def hidden(self) -> int:
        """How many dead letters nobody can see."""
        return int(self.bench.dead.attributes["ApproximateNumberOfMessagesNotVisible"])


def now(seconds: float = 0) -> str:
    return iso_time((time.time() + seconds) * 1000)


@pytest.fixture(autouse=True)
def _loggers_as_in_a_new_environment(capsys):
    for name in ("work", "replay"):
        forget_logger(name)


@pytest.fixture
def desk(dynamodb):
    return Desk(bench_of(dynamodb, "", group_commit=True))


@pytest.fixture
def fifo_desk(dynamodb):
    return Desk(bench_of(dynamodb, ".fifo", group_commit=True))

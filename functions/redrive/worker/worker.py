"""The Lambda handler of a job: reads the event, and hands its messages to a `BatchRun`."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import boto3
from botocore.config import Config

from redrive import clients
from redrive.errors import NotAnSqsEvent
from redrive.message import Message
from redrive.worker.batch_run import BatchRun, Environment
from redrive.worker.dead_letters import DeadLetters
from redrive.worker.group_commit import GroupCommit
from redrive.worker.idempotency import JobFunction, RunSlot
from redrive.worker.job import LambdaContext
from redrive.worker.jobs_table import JobsTable
from redrive.worker.settings import Settings
from redrive.worker.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

BatchResponse: TypeAlias = dict[str, list[dict[str, str]]]


class Worker:
    """The Lambda handler of a job: `handler = Worker(run)`, where `run` takes a `Job`.

    The function's return value is remembered for thirty days under the job's key; what it raises
    decides what becomes of the message (see `redrive.errors`). Nothing is read or connected before
    the first invocation. The collaborators, and `group_commit`, are for tests and measurements.
    """

    def __init__(
        self,
        function: JobFunction,
        *,
        settings: Settings | None = None,
        sqs: "SQSClient | None" = None,
        dynamodb: "DynamoDBClient | None" = None,
        random: Random | None = None,
        clock: Callable[[], float] = time.time,
        group_commit: bool = True,
    ) -> None:
        self._function = function
        self._settings, self._sqs, self._dynamodb = settings, sqs, dynamodb
        self._random, self._clock = random or Random(), clock
        self._group_commit = group_commit
        self._environment: Environment | None = None

    def __call__(self, event: Mapping[str, Any], context: LambdaContext) -> BatchResponse:
        """Handles one batch. For an event of SQS it always returns, and lists what is not done.

        Raises NotAnSqsEvent for any other event, and SettingsError where the environment is not
        what the stack sets: both are for whoever deployed or invoked it, not for the queue.
        """
        messages = read_event(event)
        if self._environment is None:
            self._environment = self._build()
        kept = BatchRun(self._environment, messages, context).run()
        return {"batchItemFailures": [{"itemIdentifier": message.id} for message in kept]}

    def _build(self) -> Environment:
        settings = self._settings or Settings.from_environment()
        threads = settings.batch_concurrency
        # A call that hangs must not cost the lease that it was to renew.
        patience = min(settings.lease_seconds / 3, 10)

        def config(attempts: int) -> Config:
            return clients.config(
                threads=threads + 1,  # the heartbeat is one more
                attempts=attempts,
                read_timeout_seconds=patience,
            )

        sqs = self._sqs or boto3.client("sqs", config=config(attempts=2))
        dynamodb = self._dynamodb or boto3.client("dynamodb", config=config(attempts=3))
        table = settings.idempotency_table
        group = GroupCommit(dynamodb, table, threads) if self._group_commit else None
        slots: SimpleQueue[RunSlot] = SimpleQueue()
        for _ in range(threads):
            slots.put(
                RunSlot(settings.job, table, dynamodb, max_kills=settings.max_kills, group=group)
            )
        return Environment(
            function=self._function,
            settings=settings,
            sqs=sqs,
            jobs_table=JobsTable(settings.jobs_table, settings.idempotency_table, dynamodb),
            dead_letters=DeadLetters(settings, sqs),
            telemetry=Telemetry(stage=settings.stage, job=settings.job),
            group=group,
            pool=ThreadPoolExecutor(threads, thread_name_prefix="job"),
            slots=slots,
            random=self._random,
            clock=self._clock,
        )


def read_event(event: Mapping[str, Any]) -> list[Message]:
    """The messages of a Lambda event. Raises NotAnSqsEvent, saying what an event must look like."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list) or not records:
        raise NotAnSqsEvent(
            "this function takes events of SQS, {'Records': [...]}; to run a job by hand, send its "
            "payload to the job's queue"
        )
    for record in records:
        if not isinstance(record, Mapping) or record.get("eventSource") != "aws:sqs":
            raise NotAnSqsEvent("a record has another eventSource than 'aws:sqs'")
    return [Message.from_record(record) for record in records]

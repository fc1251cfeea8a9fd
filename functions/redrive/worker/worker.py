"""Runs the batches of one job: opens the messages, runs them side by side, and settles each.

Nothing here decides a message's fate: that is `outcome.decide`.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import boto3

from redrive import aws_errors, clients
from redrive.errors import NotAnSqsEvent
from redrive.message import Message
from redrive.worker.batch import Delivery, lanes, open_message
from redrive.worker.causes import cause_of
from redrive.worker.dead_letters import DeadLetters
from redrive.worker.idempotency import JobFunction, RunSlot
from redrive.worker.job import LambdaContext
from redrive.worker.outcome import DeadLetter, Decision, Happening, NotStarted, Return, decide
from redrive.worker.settings import Settings
from redrive.worker.telemetry import Telemetry
from redrive.worker.visibility import change_visibility

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

BatchResponse: TypeAlias = dict[str, list[dict[str, str]]]


class Worker:
    """The Lambda handler of a job: `handler = Worker(run)`, where `run` takes a `Job`.

    The function's return value is remembered for thirty days under the job's key; what it raises
    decides what becomes of the message (see `redrive.errors`). Nothing is read or connected before
    the first invocation. The collaborators are for tests.
    """

    def __init__(
        self,
        function: JobFunction,
        *,
        settings: Settings | None = None,
        sqs: "SQSClient | None" = None,
        dynamodb: "DynamoDBClient | None" = None,
        random: Random | None = None,
    ) -> None:
        self._function = function
        self._settings, self._sqs, self._dynamodb = settings, sqs, dynamodb
        self._random = random or Random()
        self._runner: _Runner | None = None

    def __call__(self, event: Mapping[str, Any], context: LambdaContext) -> BatchResponse:
        """Handles one batch. For an event of SQS it always returns, and lists what is not done.

        Raises NotAnSqsEvent for any other event, and SettingsError where the environment is not
        what the stack sets: both are for whoever deployed or invoked it, not for the queue.
        """
        messages = read_event(event)
        if self._runner is None:
            self._runner = self._build()
        return self._runner.handle(messages, context)

    def _build(self) -> "_Runner":
        settings = self._settings or Settings.from_environment()
        config = clients.config(threads=settings.batch_concurrency)
        return _Runner(
            self._function,
            settings=settings,
            sqs=self._sqs or boto3.client("sqs", config=config),
            dynamodb=self._dynamodb or boto3.client("dynamodb", config=config),
            random=self._random,
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


class _Runner:
    """A worker's collaborators, made once per execution environment, and its handling of a
    batch.
    """

    def __init__(
        self,
        function: JobFunction,
        *,
        settings: Settings,
        sqs: "SQSClient",
        dynamodb: "DynamoDBClient",
        random: Random,
    ) -> None:
        self._function, self._settings, self._sqs, self._random = function, settings, sqs, random
        self._dead_letters = DeadLetters(settings, sqs, dynamodb)
        self._telemetry = Telemetry(stage=settings.stage, job=settings.job)
        self._pool = ThreadPoolExecutor(settings.batch_concurrency, thread_name_prefix="job")
        self._slots: SimpleQueue[RunSlot] = SimpleQueue()
        for _ in range(settings.batch_concurrency):
            self._slots.put(RunSlot(settings.job, settings.idempotency_table, dynamodb))

    def handle(self, messages: Sequence[Message], context: LambdaContext) -> BatchResponse:
        deliveries = [open_message(one, self._settings, context) for one in messages]
        with self._telemetry.batch(context, deliveries):
            batch_lanes = lanes(deliveries, fifo=self._settings.fifo)
            list(self._pool.map(lambda lane: self._run_lane(lane, context), batch_lanes))
            returned = [one for one in deliveries if isinstance(one.decision, Return)]
            self._set_backoff(returned)
        return {"batchItemFailures": [{"itemIdentifier": one.message.id} for one in returned]}

    # --- one lane, on a thread of the pool --------------------------------------------------------

    def _run_lane(self, lane: list[Delivery], context: LambdaContext) -> None:
        waiting: Return | None = None
        for delivery in lane:
            if waiting:
                delivery.happening, delivery.decision = NotStarted("EarlierInGroup"), waiting
                continue
            try:
                delivery.happening = delivery.happening or self._run(delivery, context)
                delivery.decision = self._settle(delivery, delivery.happening, context)
            except Exception as error:
                # A fault of ours: the message stays in the queue, and its neighbours go on.
                self._telemetry.trouble("worker failed", delivery, error)
                delivery.happening = NotStarted("WorkerError")
                delivery.decision = self._decide(delivery, delivery.happening)
            self._telemetry.settled(delivery)
            # The order inside a FIFO group holds only while later ones wait with the failed one.
            if self._settings.fifo and isinstance(delivery.decision, Return):
                waiting = delivery.decision

    def _run(self, delivery: Delivery, context: LambdaContext) -> Happening:
        if context.get_remaining_time_in_millis() < self._settings.p99_seconds * 1000:
            return NotStarted("NoTimeLeft")
        slot = self._slots.get()
        try:
            run = slot.run(self._function, delivery.job)
        finally:
            self._slots.put(slot)
        delivery.milliseconds = run.milliseconds
        if run.store_error:
            self._telemetry.trouble("idempotency table failed", delivery, run.store_error)
        return run.happening

    def _settle(self, delivery: Delivery, happening: Happening, context: LambdaContext) -> Decision:
        decision = self._decide(delivery, happening)
        if not isinstance(decision, DeadLetter):
            return decision
        message = delivery.message
        cause = cause_of(
            decision.error, message=message, attempts=delivery.attempt, context=context
        )
        try:
            self._dead_letters.send(message, delivery.job_id, cause)
        except Exception as error:
            # Without a confirmed copy the message must not go.
            self._telemetry.trouble("dead-letter queue refused", delivery, error)
            delivery.happening = NotStarted("DeadLetterRefused")
            return self._decide(delivery, delivery.happening)
        try:
            self._dead_letters.remember(message, delivery.job_id, cause)
        except Exception as error:
            self._telemetry.trouble("jobs table failed", delivery, error)
        return decision

    def _decide(self, delivery: Delivery, happening: Happening) -> Decision:
        return decide(
            happening,
            attempt=delivery.attempt,
            receives=delivery.message.receives,
            policy=self._settings.retry,
            random=self._random,
        )

    # --- the whole batch, on the main thread ------------------------------------------------------

    def _set_backoff(self, returned: Sequence[Delivery]) -> None:
        delays = [
            (one.message.receipt_handle, one.decision.seconds)
            for one in returned
            if isinstance(one.decision, Return)
        ]
        try:
            refused = change_visibility(self._sqs, self._settings.queue_url, delays)
        except Exception as error:
            refused = [aws_errors.code(error)] * len(delays)
        self._telemetry.backoff_refused(refused)

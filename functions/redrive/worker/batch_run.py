"""One batch: its jobs run side by side, and each of its messages is settled.

Nothing here decides a message's fate: that is `outcome.decide`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, NoReturn

from redrive.errors import Expired
from redrive.message import Cause, Envelope, Message, read_time
from redrive.worker.batch import Delivery, apart, lanes, open_message
from redrive.worker.causes import cause_of
from redrive.worker.dead_letters import DeadLetters
from redrive.worker.group_commit import GroupCommit
from redrive.worker.heartbeat import Heartbeat
from redrive.worker.idempotency import JobFunction, RunSlot, record_id
from redrive.worker.job import Job, LambdaContext
from redrive.worker.jobs_table import Asked, JobsTable
from redrive.worker.outcome import (
    Acknowledge,
    DeadLetter,
    Decision,
    Facts,
    Failed,
    Happening,
    LeaseLost,
    Leave,
    NotStarted,
    Return,
    decide,
    hand_back,
    put_off,
)
from redrive.worker.settings import Settings
from redrive.worker.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What outlives a batch: made once, and used by one batch at a time."""

    function: JobFunction
    settings: Settings
    sqs: "SQSClient"
    jobs_table: JobsTable
    dead_letters: DeadLetters
    telemetry: Telemetry
    group: GroupCommit | None
    pool: ThreadPoolExecutor
    slots: "SimpleQueue[RunSlot]"
    random: Random
    clock: Callable[[], float]


class BatchRun:
    """The handling of one batch."""

    def __init__(
        self, environment: Environment, messages: Sequence[Message], context: LambdaContext
    ) -> None:
        self._environment, self._context = environment, context
        self._settings, self._telemetry = environment.settings, environment.telemetry
        self._group = environment.group
        self._deliveries = [open_message(one, environment.settings, context) for one in messages]
        self._heartbeat = Heartbeat(
            environment.sqs,
            self._settings.queue_url,
            messages,
            context,
            lease_seconds=self._settings.lease,
            on_trouble=environment.telemetry.visibility_trouble,
        )

    def run(self) -> list[Message]:
        """Settles every message, and returns those that SQS must keep."""
        with self._telemetry.batch(self._context, self._deliveries), self._heartbeat:
            self._recall([one for one in self._deliveries if one.message.receives > 1])
            together, alone = apart(lanes(self._deliveries, fifo=self._settings.fifo))
            if self._group:
                self._group.expect(len(together))
            list(self._environment.pool.map(self._run_beside_others, together))
            for lane in alone:
                self._run_lane(lane)
        return [
            one.message
            for one in self._deliveries
            if not isinstance(one.decision, Acknowledge | DeadLetter)
        ]

    def _recall(self, again: Sequence[Delivery]) -> None:
        """Finds out what came before, of messages that were delivered before."""
        if not again:
            return
        asked = [
            Asked(one.job_id, one.message.id, record_id(self._settings.job, one.job.run_key))
            for one in again
        ]
        try:
            histories = self._environment.jobs_table.read(asked)
        except Exception as error:
            histories = {}
            self._telemetry.trouble("jobs table failed", again[0], error)
        for delivery in again:
            history = histories.get(delivery.message.id)
            if history:
                delivery.recall(history)
            else:
                # It may be dead already, or out of attempts.
                delivery.happening = NotStarted("HistoryUnknown")

    # --- one lane: of several, each is on a thread of its own -------------------------------------

    def _run_beside_others(self, lane: Sequence[Delivery]) -> None:
        try:
            self._run_lane(lane)
        finally:
            if self._group:
                self._group.ended()

    def _run_lane(self, lane: Sequence[Delivery]) -> None:
        for place, delivery in enumerate(lane):
            self._run_and_settle(delivery)
            # The order inside a FIFO group holds only while the later ones wait with this one.
            if self._settings.fifo and isinstance(delivery.decision, Return | Leave):
                self._let_wait(delivery, lane[place + 1 :])
                return
            if isinstance(delivery.decision, Return):
                self._heartbeat.release([delivery.message], delivery.decision.seconds)

    def _let_wait(self, first: Delivery, later: Sequence[Delivery]) -> None:
        seconds = first.decision.seconds if isinstance(first.decision, Return) else 0
        for delivery in later:
            delivery.happening = NotStarted("EarlierInGroup")
            with self._settling(delivery):
                facts = self._facts(delivery)
                self._settle(delivery, put_off(seconds, facts, self._settings.contract))
        waiting = [one.message for one in (first, *later) if isinstance(one.decision, Return)]
        self._heartbeat.release(waiting, seconds)

    def _run_and_settle(self, delivery: Delivery) -> None:
        with self._settling(delivery):
            delivery.happening = delivery.happening or self._run(delivery)
            self._settle(delivery, self._decide(delivery, delivery.happening))

    @contextmanager
    def _settling(self, delivery: Delivery) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # A fault of ours: the message stays in the queue, and its neighbours go on.
            self._telemetry.trouble("worker failed", delivery, error)
            self._hand_back(delivery, "WorkerError")
        self._telemetry.settled(delivery)

    def _run(self, delivery: Delivery) -> Happening:
        if self._context.get_remaining_time_in_millis() < self._settings.p99_seconds * 1000:
            return NotStarted("NoTimeLeft")
        if self._settings.lease is not None and self._heartbeat.until <= time.time() * 1000:
            return LeaseLost()  # its claim would have lapsed at its birth
        expired = self._expired(delivery)
        slot = self._environment.slots.get()
        self._heartbeat.watch(slot)
        try:
            run = slot.run(
                expired or self._environment.function, delivery.job, lambda: self._heartbeat.until
            )
        finally:
            self._heartbeat.forget(slot)
            self._environment.slots.put(slot)
        delivery.milliseconds = None if expired else run.milliseconds
        delivery.forget_claim = run.forget_claim
        if run.dead_run:
            self._telemetry.run_killed(delivery, run.dead_run)
        if run.store_error:
            self._telemetry.trouble("idempotency table failed", delivery, run.store_error)
        return run.happening

    def _expired(self, delivery: Delivery) -> JobFunction | None:
        """What is run in the job's place where it comes too late.

        It takes a claim all the same: without one nobody knows whether the job was done before.
        """
        envelope = delivery.message.envelope or Envelope()
        # Who forces a replay wants the job run, however late it is.
        if envelope.expires_at is None or envelope.force:
            return None
        if self._environment.clock() * 1000 < read_time(envelope.expires_at):
            return None
        last = delivery.last_cause
        before = f"; the last attempt failed by {last.type} ({last.fingerprint})" if last else ""
        error = Expired(f"its publisher did not want it run after {envelope.expires_at}{before}")

        def refuse(_: Job) -> NoReturn:
            raise error

        return refuse

    # --- settling ---------------------------------------------------------------------------------

    def _decide(self, delivery: Delivery, happening: Happening) -> Decision:
        facts, random = self._facts(delivery), self._environment.random
        return decide(happening, facts, self._settings.contract, random)

    def _facts(self, delivery: Delivery) -> Facts:
        return Facts(
            attempt=delivery.attempt,
            receives=delivery.message.receives,
            age_seconds=self._environment.clock() - delivery.message.sent_at / 1000,
        )

    def _settle(self, delivery: Delivery, decision: Decision) -> None:
        if isinstance(decision, DeadLetter):
            self._dead_letter(delivery, decision)
            return
        happening = delivery.happening
        if isinstance(decision, Return) and decision.attempt and isinstance(happening, Failed):
            self._count_attempt(delivery, happening.error)
        if isinstance(decision, Leave):
            self._heartbeat.drop(delivery.message)
        delivery.decision = decision

    def _hand_back(self, delivery: Delivery, reason: str) -> None:
        delivery.happening = NotStarted(reason)
        # Not `decide`: a message that is too old would count as dead-lettered, and nobody sent it.
        delivery.decision = hand_back(self._facts(delivery), self._environment.random)

    def _dead_letter(self, delivery: Delivery, decision: DeadLetter) -> None:
        message, table = delivery.message, self._environment.jobs_table
        cause = self._cause(delivery, decision.error, decision.attempts)
        try:
            copy_id = self._environment.dead_letters.send(message, delivery.job_id, cause)
        except Exception as error:
            # Without a confirmed copy the message must not go.
            self._telemetry.trouble("dead-letter queue refused", delivery, error)
            self._hand_back(delivery, "DeadLetterRefused")
            with self._troubles("jobs table failed", delivery):
                table.mark_dying(delivery.job_id, message.id, cause)
                if delivery.forget_claim:
                    delivery.forget_claim()  # the row says it now; the next delivery has no claim
            return
        delivery.decision, delivery.cause = decision, cause
        before = message.envelope or Envelope()
        with self._troubles("jobs table failed", delivery):
            table.mark_dead(
                delivery.job_id,
                message.id,
                cause,
                replays=before.replays,
                force=before.force,
                copy_id=copy_id,
            )
        if delivery.forget_claim:
            with self._troubles("idempotency table failed", delivery):
                delivery.forget_claim()  # so that a replay starts with no kills

    def _cause(self, delivery: Delivery, error: BaseException | Cause, attempts: int) -> Cause:
        if isinstance(error, Cause):
            return error
        return cause_of(error, message=delivery.message, attempts=attempts, context=self._context)

    def _count_attempt(self, delivery: Delivery, error: BaseException) -> None:
        cause = self._cause(delivery, error, delivery.attempt)
        # Where it fails, one attempt is not counted; the queue's maxReceiveCount is the backstop.
        with self._troubles("jobs table failed", delivery):
            self._environment.jobs_table.count_attempt(delivery.job_id, delivery.message.id, cause)

    @contextmanager
    def _troubles(self, what: str, delivery: Delivery) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._telemetry.trouble(what, delivery, error)

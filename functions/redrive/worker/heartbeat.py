"""The lease of a batch: its messages stay hidden while it runs, and not much longer if it dies.

A queue's visibility timeout is long, six times the function's, which is safe against throttling; a
killed run's messages would be away as long. So a batch shortens it to a lease, and renews that
while it runs. The same thread makes all of a batch's visibility calls: a renewal that is under way
cannot overwrite the backoff of a message that has failed meanwhile.

The thread needs the GIL: a job that holds it for more than half a lease in one C call can lose its
lease. Such work belongs into a child process.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, Self

from redrive import aws_errors
from redrive.message import Message
from redrive.worker.job import LambdaContext
from redrive.worker.visibility import Refused, change_visibility

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

# Two renewals may fail before a lease ends.
_BEATS_A_LEASE: Final = 3
# Failures come together: a moment's wait puts their backoffs into one call.
_GATHER_SECONDS: Final = 0.05


class Renewable(Protocol):
    """A run whose claim lasts as long as the lease."""

    def renew(self, until: float) -> None: ...


class Heartbeat:
    """Use as a context manager around the jobs of a batch.

    `until` is when the lease ends, in milliseconds since the epoch. Without a lease (the queue's
    own timeout is no longer than it) nothing is renewed, and backoffs are set at the end.
    `on_trouble` is told what failed, by which code, for how many messages.
    """

    def __init__(
        self,
        sqs: "SQSClient",
        queue_url: str,
        messages: Iterable[Message],
        context: LambdaContext,
        *,
        lease_seconds: float | None,
        on_trouble: Callable[[str, str, int], None],
    ) -> None:
        self._sqs, self._queue_url, self._context = sqs, queue_url, context
        self._lease_seconds, self._on_trouble = lease_seconds, on_trouble
        self._held = {message.receipt_handle for message in messages}
        self._backoffs: list[tuple[str, int]] = []
        self._runs: set[Renewable] = set()
        self._ended = False
        self._leaving = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self.until = self._lease_end()

    def __enter__(self) -> Self:
        if self._lease_seconds is not None:
            self._thread.start()
            # The first call leaves before the first job starts; the answer need not be waited for.
            self._leaving.wait()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._set_backoffs()

    # --- for the batch's threads ------------------------------------------------------------------

    def release(self, messages: Sequence[Message], seconds: int) -> None:
        """Makes the messages visible again after so long; they are no longer renewed."""
        with self._changed:
            for message in messages:
                self._held.discard(message.receipt_handle)
                self._backoffs.append((message.receipt_handle, seconds))
            self._changed.notify()

    def drop(self, message: Message) -> None:
        """Leaves the message to whoever has it now."""
        with self._changed:
            self._held.discard(message.receipt_handle)

    def watch(self, run: Renewable) -> None:
        """Renews the run's claim with the messages', until `forget`."""
        with self._changed:
            self._runs.add(run)

    def forget(self, run: Renewable) -> None:
        """The run has ended."""
        with self._changed:
            self._runs.discard(run)

    # --- the thread -------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._leaving.set()
        self._renew_messages(self.until)
        interval = (self._lease_seconds or 0) / _BEATS_A_LEASE
        next_beat = time.monotonic() + interval
        while not self._wait(lambda: bool(self._backoffs), next_beat - time.monotonic()):
            if self._backoffs and self._wait(lambda: False, _GATHER_SECONDS):
                return
            self._set_backoffs()
            if time.monotonic() >= next_beat:
                self._renew()
                next_beat = time.monotonic() + interval

    def _wait(self, for_what: Callable[[], bool], seconds: float) -> bool:
        """Waits until there is something to do, or the time is over. True when the batch has
        ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ended or for_what(), timeout=max(seconds, 0))
            return self._ended

    def _renew(self) -> None:
        until = self._lease_end()
        self._renew_messages(until)
        # The claims no longer than the messages: when a run has died, the first delivery finds its
        # claim lapsed. But also where SQS did not renew them: the runs live, and whoever gets their
        # messages must find them running.
        self.until = until
        with self._changed:
            runs = list(self._runs)
        for run in runs:
            try:
                run.renew(until)
            except Exception as error:
                self._on_trouble("claim not renewed", aws_errors.code(error), 1)

    def _renew_messages(self, until: float) -> None:
        """Those that SQS has given to others are let go."""
        with self._changed:
            held = list(self._held)
        seconds = max(math.ceil(until / 1000 - time.time()), 1)
        refused = self._change("lease not renewed", [(receipt, seconds) for receipt in held])
        with self._changed:
            self._held -= refused.lost.keys()

    def _set_backoffs(self) -> None:
        with self._changed:
            backoffs, self._backoffs = self._backoffs, []
        # What is refused comes back by the lease's end, or the queue's own timeout.
        self._change("backoff not set", backoffs)

    def _change(self, what: str, delays: Sequence[tuple[str, int]]) -> Refused:
        refused = change_visibility(self._sqs, self._queue_url, delays)
        if refused.codes:
            self._on_trouble(what, refused.codes[0], len(refused.codes))
        return refused

    def _lease_end(self) -> float:
        # SQS's twelve hours from the receive are far: Lambda's deadline comes first.
        deadline = self._context.get_remaining_time_in_millis()
        if self._lease_seconds is not None:
            deadline = min(deadline, int(self._lease_seconds * 1000))
        return time.time() * 1000 + deadline

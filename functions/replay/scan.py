"""Reads a whole dead-letter queue, and leaves in it what nobody took out.

What was read stays hidden until the end: released at once, the same ten messages would come again
and again. A scan that is killed gives all back when their visibility timeout ends.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from random import uniform
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from redrive import aws_errors, limits
from redrive.worker.visibility import change_visibility
from replay.halt import Halt
from replay.letters import Received

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

T = TypeVar("T")
Handle: TypeAlias = Callable[[Sequence[Received]], int]

# More of them, sharing one core, gain nothing.
THREADS: Final = 32
# Of a FIFO queue, whose groups show no more while some of theirs are in hand, each thread asks for
# ten at once, however large: so many times ten of the largest fit into memory.
_FIFO_THREADS: Final = 8

# One BatchGetItem tells the history of so many, and their sends are full.
_HANDFUL: Final = 50
_MESSAGES_A_THREAD: Final = 100
# In memory, where one emoji makes each character of a text four bytes.
_HANDFUL_BYTES: Final = 4 * limits.MESSAGE_BYTES
# A long poll asks all of SQS's servers; a short one may find nothing where there is something.
_LONG_POLL_SECONDS: Final = 1
_EMPTY_POLLS: Final = 2
# Handfuls on end, by any threads, in which nothing counts, although more should be there.
_HANDFULS_IN_VAIN: Final = 40
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.2
# What an answer leaves out.
_NOT_CONFIRMED: Final[Any] = {"Code": "NotConfirmed", "SenderFault": False}
# What was read is given back within so long, or comes back later: an answer does not wait for it.
_RELEASE_SECONDS: Final = 6

IN_FLIGHT_LIMIT: Final = "in-flight limit"
# SQS's ceiling is about 120,000; on a FIFO queue a receive then finds nothing, without an error.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
_NEAR_IN_FLIGHT_LIMIT: Final = 115_000


class Scan:
    """Use as a context manager: what was not removed in it is visible again after it.

    `hold_seconds` is how long a message stays hidden if the scan is killed. `not_given_back` says
    so where SQS did not take all of it back.
    """

    def __init__(
        self,
        sqs: "SQSClient",
        queue_url: str,
        halt: Halt,
        *,
        hold_seconds: float,
        most_threads: int = THREADS,
    ) -> None:
        self._sqs, self._queue_url, self._halt = sqs, queue_url, halt
        self._is_fifo = queue_url.endswith(".fifo")
        self._hold_seconds = max(int(hold_seconds), 2)
        self._threads = min(most_threads, _FIFO_THREADS) if self._is_fifo else most_threads
        self._held: dict[str, str] = {}
        self._removed: set[str] = set()
        self._handling = 0
        self._lock = threading.Lock()
        self._enough = threading.Event()
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="renewer", daemon=True)
        self._known: set[str] = set()
        # Of the last messages; before the first, the worst.
        self._largest = limits.MESSAGE_BYTES
        self._counted = self._in_vain = 0
        self.not_given_back: str | None = None

    def __enter__(self) -> Self:
        visible, hidden = self._count()
        self._expected = visible + hidden
        self._threads = min(self._threads, 1 + visible // _MESSAGES_A_THREAD)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="scan")
        self._renewer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._renewer.join()
        # Delivered once more although they were deleted, as SQS may.
        for chunk in chunks(
            [id_ for id_ in self._held if id_ in self._removed], limits.BATCH_ENTRIES
        ):
            self._delete(chunk)
        left = self._change_all(0, within_seconds=_RELEASE_SECONDS)
        self._pool.shutdown()
        if left:
            self.not_given_back = f"{left} messages are hidden for at most two minutes more"

    def read(self, handle: Handle) -> None:
        """Hands every message to `handle` once, in handfuls and from several threads, until two
        long polls on end find nothing or the run is stopped. Raises what `handle` raises.

        `handle` returns how many of them count. Those that do not came after the scan had begun,
        and may come for ever.
        """
        reading = [self._pool.submit(self._read, handle) for _ in range(self._threads)]
        wait(reading)  # all of them, before anything is given back
        for one in reading:
            one.result()

    def enough(self) -> None:
        """Reads no more; what was read is still handled."""
        self._enough.set()

    def remove(self, message_ids: Iterable[str]) -> dict[str, str]:
        """Deletes messages; returns the codes of those that SQS kept, by message id."""
        kept: dict[str, str] = {}
        for chunk in chunks(list(message_ids), limits.BATCH_ENTRIES):
            kept |= self._delete(chunk)
        return kept

    def missed(self) -> str | None:
        """Why a scan that found no more has not seen all that was there when it began, or None."""
        _, hidden = self._count()
        if hidden >= _NEAR_IN_FLIGHT_LIMIT:
            return IN_FLIGHT_LIMIT
        unseen = self._expected - self._counted
        if unseen <= 0:
            return None
        if self._is_fifo:
            return (
                f"about {unseen} messages were not seen: of a group SQS shows ten at a time, so "
                "replay those in front of them first; or another reader has them"
            )
        return (
            f"about {unseen} messages were not seen: another reader, or a run that was killed, has "
            "them for at most two minutes; or jobs die faster than they are read; or they were "
            "deleted a moment ago, since SQS's counts lag"
        )

    def _count(self) -> tuple[int, int]:
        """About how many messages are visible, and how many are not."""
        counts = self._sqs.get_queue_attributes(
            QueueUrl=self._queue_url,
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )["Attributes"]
        return (
            int(counts["ApproximateNumberOfMessages"]),
            int(counts["ApproximateNumberOfMessagesNotVisible"]),
        )

    # --- reading ----------------------------------------------------------------------------------

    def _read(self, handle: Handle) -> None:
        try:
            self._read_to_the_end(handle)
        except BaseException as error:
            self._halt.stop(f"failed: {aws_errors.code(error)}")  # for the other threads too
            raise

    def _read_to_the_end(self, handle: Handle) -> None:
        empty_polls = 0
        # While a handful is handled, its FIFO groups show nothing; after it, they may.
        while not self._stopped and (
            empty_polls < _EMPTY_POLLS or (self._is_fifo and self._handling)
        ):
            handful, found_nothing = self._handful()
            if handful:
                with self._busy():
                    counted = handle(handful)
                if self._note_counted(counted):
                    empty_polls = 0
                empty_polls += found_nothing or not counted
            else:
                empty_polls += found_nothing

    def _note_counted(self, counted: int) -> bool:
        """Whether there may be more that counts."""
        with self._lock:
            self._counted += counted
            self._in_vain = 0 if counted else self._in_vain + 1
            return bool(counted) or (
                self._counted < self._expected and self._in_vain < _HANDFULS_IN_VAIN
            )

    @contextmanager
    def _busy(self) -> Iterator[None]:
        with self._lock:
            self._handling += 1
        try:
            yield
        finally:
            with self._lock:
                self._handling -= 1

    def _handful(self) -> tuple[list[Received], bool]:
        """Some messages that were not read before, and whether a poll found nothing."""
        handful: list[Received] = []
        size = 0
        while len(handful) < _HANDFUL and size < _HANDFUL_BYTES and not self._stopped:
            messages = self._receive(self._room_for(_HANDFUL - len(handful), _HANDFUL_BYTES - size))
            if not messages:
                return handful, not self._halt.stopped
            new = [one for one in map(Received.read, messages) if self._hold(one)]
            handful += new
            sizes = [_in_memory(one) for one in new]
            size += sum(sizes)
            self._largest = max(*sizes, self._largest // 2, 1)
        return handful, False

    def _room_for(self, most: int, bytes_: int) -> int:
        """How many messages to ask for."""
        if self._is_fifo:
            return limits.BATCH_ENTRIES
        return min(most, limits.BATCH_ENTRIES, max(bytes_ // self._largest, 1))

    @property
    def _stopped(self) -> bool:
        return self._enough.is_set() or self._halt.stopped

    def _receive(self, most: int) -> Sequence[Any]:
        for attempt in range(1, _TRIES + 1):
            try:
                answer = self._sqs.receive_message(
                    QueueUrl=self._queue_url,
                    MaxNumberOfMessages=most,
                    VisibilityTimeout=self._hold_seconds,
                    WaitTimeSeconds=_LONG_POLL_SECONDS,
                    MessageAttributeNames=["All"],
                    MessageSystemAttributeNames=["All"],
                )
            except Exception as error:
                if "OverLimit" in aws_errors.names(error):
                    self._halt.stop(IN_FLIGHT_LIMIT)
                elif not aws_errors.may_pass(error) or attempt == _TRIES:
                    self._halt.stop(f"receive failed: {aws_errors.code(error)}")
                if self._halt.wait(uniform(0, 2 * _PAUSE_SECONDS * attempt)):
                    return []
            else:
                return answer.get("Messages", [])
        return []

    def _hold(self, received: Received) -> bool:
        """Whether it is new. SQS may deliver a message twice; the newest receipt is the one that
        holds.
        """
        id_ = received.message.id
        with self._lock:
            is_new = id_ not in self._known
            self._known.add(id_)
            self._held[id_] = received.message.receipt_handle
        return is_new

    # --- holding, and giving back -----------------------------------------------------------------

    def _renew(self) -> None:
        while not self._ended.wait(self._hold_seconds / 3):
            self._change_all(self._hold_seconds, within_seconds=self._hold_seconds)

    def _change_all(self, seconds: int, *, within_seconds: float) -> int:
        """Hides for so long all that is held. Returns how many this did not reach in time, or SQS
        refused for a trouble of its own: they come back by themselves.
        """
        with self._lock:
            receipts = list(self._held.values())
        deadline = time.monotonic() + within_seconds

        def change(part: Sequence[str]) -> int:
            if time.monotonic() >= deadline:
                return len(part)
            changes = [(receipt, seconds) for receipt in part]
            return len(change_visibility(self._sqs, self._queue_url, changes).missed)

        with ThreadPoolExecutor(THREADS) as pool:
            return sum(pool.map(change, chunks(receipts, limits.BATCH_ENTRIES)))

    def _delete(self, ids: Sequence[str]) -> dict[str, str]:
        with self._lock:
            receipts = [self._held.get(id_, "") for id_ in ids]
        entries: list[Any] = [
            {"Id": str(place), "ReceiptHandle": receipt} for place, receipt in enumerate(receipts)
        ]
        kept: dict[str, str] = {}
        for attempt in range(1, _TRIES + 1):
            kept = {}
            try:
                answer = self._sqs.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)
            except Exception as error:
                kept = {ids[int(entry["Id"])]: aws_errors.code(error) for entry in entries}
                passes = aws_errors.may_pass(error)
            else:
                deleted = {one["Id"] for one in answer.get("Successful", ())}
                self._forget([ids[int(place)] for place in deleted])
                told = {one["Id"]: one for one in answer.get("Failed", ())}
                entries = [entry for entry in entries if entry["Id"] not in deleted]
                failed = {entry["Id"]: told.get(entry["Id"], _NOT_CONFIRMED) for entry in entries}
                kept = {ids[int(place)]: one["Code"] for place, one in failed.items()}
                passes = any(not one["SenderFault"] for one in failed.values())
            if not kept or not passes or self._ended.wait(uniform(0, 2 * _PAUSE_SECONDS * attempt)):
                return kept
        return kept

    def _forget(self, ids: Iterable[str]) -> None:
        with self._lock:
            for id_ in ids:
                self._held.pop(id_, None)
                self._removed.add(id_)


def _in_memory(received: Received) -> int:
    """About how many bytes it takes here."""
    values = (value for one in received.message.attributes.values() for value in one.values())
    return sys.getsizeof(received.message.body) + sum(map(sys.getsizeof, values))


def chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """The items in order, in parts of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]

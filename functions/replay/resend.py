"""Sends dead letters to the queue that they came from, as they were."""

from collections.abc import Callable, Iterator, Sequence
from random import uniform
from typing import TYPE_CHECKING, Any, Final

from redrive import aws_errors, limits
from redrive.message import message_bytes
from redrive.worker.dead_letters import attributes_with
from redrive.worker.jobs_table import JobsTable
from replay.halt import Halt
from replay.letters import DeadLetter, deduplication_id, in_order, replayed
from replay.pace import Pace

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_TRIES: Final = 5

NO_ROOM: Final = (
    "it has no room for the attribute `redrive`, which would tell its worker that it is forced "
    "(ten attributes, or 1 MiB, or one of that name that is not ours)"
)


class Resend:
    """`on_sent` is told each letter that SQS has confirmed, and the new message's id; `on_failed`
    each that was not sent, and why.
    """

    def __init__(
        self,
        sqs: "SQSClient",
        table: JobsTable,
        *,
        fifo: bool,
        force: bool,
        pace: Pace,
        halt: Halt,
        on_sent: Callable[[DeadLetter, str], None],
        on_failed: Callable[[DeadLetter, str], None],
    ) -> None:
        self._sqs, self._table = sqs, table
        self._fifo, self._force, self._pace, self._halt = fifo, force, pace, halt
        self._on_sent, self._on_failed = on_sent, on_failed

    def send(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Sends what it can before the halt; returns what was confirmed, in order."""
        sent: list[DeadLetter] = []
        for queue_url in sorted({letter.queue_url for letter in letters}):
            of_queue = [letter for letter in letters if letter.queue_url == queue_url]
            rounds = self._rounds(of_queue) if self._fifo else iter([of_queue])
            stopped_groups: set[str | None] = set()
            for letters_of_round in rounds:
                # What comes after one that could not be sent must not overtake it.
                going = [
                    one for one in letters_of_round if one.message.group_id not in stopped_groups
                ]
                confirmed = self._send_all(queue_url, going)
                sent += confirmed
                if self._fifo:
                    done = {id(one) for one in confirmed}
                    stopped_groups |= {
                        one.message.group_id for one in letters_of_round if id(one) not in done
                    }
        return sent

    def _rounds(self, letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
        """One of each group, the oldest, then the next: a batch may be taken in part."""
        groups: dict[str | None, list[DeadLetter]] = {}
        for letter in in_order(letters):
            groups.setdefault(letter.message.group_id, []).append(letter)
        for place in range(max(map(len, groups.values()))):
            yield [group[place] for group in groups.values() if place < len(group)]

    def _send_all(self, queue_url: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        sent: list[DeadLetter] = []
        batch: list[tuple[DeadLetter, dict[str, Any]]] = []
        size = 0
        for letter in letters:
            fields = self._fields(letter)
            if fields is None:
                self._on_failed(letter, NO_ROOM)
                continue
            # SQS limits the messages of a call together as it limits one.
            bytes_ = message_bytes(letter.message.body, fields["MessageAttributes"])
            if batch and (len(batch) == self._pace.batch or size + bytes_ > limits.MESSAGE_BYTES):
                sent += self._send_batch(queue_url, batch)
                batch, size = [], 0
            batch.append((letter, fields))
            size += bytes_
        return sent + self._send_batch(queue_url, batch)

    def _fields(self, letter: DeadLetter) -> dict[str, Any] | None:
        """SendMessage's fields; None where a forced replay could not say that it is one."""
        message = letter.message
        attributes = attributes_with(message, replayed(letter))
        if self._force and attributes is message.attributes:
            return None
        fields: dict[str, Any] = {"MessageBody": message.body, "MessageAttributes": attributes}
        if message.group_id is not None:
            fields["MessageGroupId"] = message.group_id
        if self._fifo:
            fields["MessageDeduplicationId"] = deduplication_id(letter)
        if message.trace_header is not None:
            fields["MessageSystemAttributes"] = {
                "AWSTraceHeader": {"DataType": "String", "StringValue": message.trace_header}
            }
        return fields

    def _send_batch(
        self, queue_url: str, batch: Sequence[tuple[DeadLetter, dict[str, Any]]]
    ) -> list[DeadLetter]:
        if not batch or not self._pace.take(len(batch), self._halt):
            return []
        sent: dict[int, str] = {}
        left = dict(enumerate(batch))
        for attempt in range(1, _TRIES + 1):
            entries: list[Any] = [{"Id": str(place), **left[place][1]} for place in left]
            reasons: dict[int, str] = {}
            try:
                answer = self._sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
            except Exception as error:
                reason = f"{aws_errors.code(error)}: {aws_errors.reason(error)}"
                reasons, passes = dict.fromkeys(left, reason), aws_errors.may_pass(error)
                if not passes and not aws_errors.is_about_a_message(error):
                    self._halt.stop(f"send failed: {reason}")  # the next call would fail as well
            else:
                sent |= {int(one["Id"]): one["MessageId"] for one in answer.get("Successful", ())}
                failed = {int(one["Id"]): one for one in answer.get("Failed", ())}
                reasons = {
                    place: f"{failed[place]['Code']}: {failed[place].get('Message', '')}"
                    if place in failed
                    else "NotConfirmed: SQS's answer leaves it out"
                    for place in left
                    if place not in sent
                }
                passes = any(not one["SenderFault"] for one in failed.values())
            left = {place: left[place] for place in reasons}
            if (
                not left
                or not passes
                or attempt == _TRIES
                or self._halt.wait(uniform(0, 0.4 * attempt))
            ):
                break
        for place, reason in reasons.items():
            self._on_failed(batch[place][0], reason)
        confirmed = [batch[place][0] for place in sorted(sent)]
        for place in sorted(sent):
            self._told(*batch[place], sent[place])
        return confirmed

    def _told(self, letter: DeadLetter, fields: dict[str, Any], message_id: str) -> None:
        self._on_sent(letter, message_id)
        if fields["MessageAttributes"] is letter.message.attributes:
            # It cannot say itself how often it was replayed: its row does.
            try:
                self._table.count_replay(letter.job_id, message_id, letter.replays + 1)
            except Exception as error:
                reason = f"sent, but its replay was not counted: {aws_errors.code(error)}"
                self._on_failed(letter, reason)

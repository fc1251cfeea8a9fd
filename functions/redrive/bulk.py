"""Sends many messages, ten to a call and no more bytes than SQS takes, and loses none."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redrive import aws_errors, limits
from redrive.compose import Composed
from redrive.discovery import Destination
from redrive.errors import PublishFailed, Unsent

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

# The pauses, each drawn from 0 to this, before SQS is asked again to take what it refused for a
# trouble of its own. Each call is repeated by botocore too.
_PAUSES_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6)


class _Entry(NamedTuple):
    position: int
    payload: Any
    message: Composed

    def unsent(self, code: str, reason: str) -> Unsent:
        return Unsent(self.position, self.payload, code, reason)


class _MeetsEveryMessage(Exception):
    """The next call would fail as this one did; boto3's error is its cause."""


class BulkSend:
    """One run of `publish_many`: what waits, how many were sent, and what could not be."""

    def __init__(
        self,
        sqs: "SQSClient",
        destination: Destination,
        compose_one: Callable[[Any], Composed],
        *,
        sleep: Callable[[float], None],
        random: Random,
    ) -> None:
        self._sqs, self._destination, self._compose_one = sqs, destination, compose_one
        self._sleep, self._random = sleep, random
        self._waiting: list[_Entry] = []
        self._waiting_bytes = 0
        self._sent = 0
        self._unsent: list[Unsent] = []

    def send_all(self, payloads: Iterable[Any]) -> int:
        rest = iter(payloads)
        try:
            broken = self._read_to_the_end(rest)
            self._send_waiting()
        except _MeetsEveryMessage as failure:
            waiting = [entry.payload for entry in self._waiting]
            raise self._failed(remaining=chain(waiting, rest)) from failure.__cause__
        if self._unsent:
            raise self._failed() from broken
        if broken:
            broken.add_note(f"publish_many: {self._sent} messages were published before this")
            raise broken
        return self._sent

    def _read_to_the_end(self, payloads: Iterator[Any]) -> Exception | None:
        """Takes the payloads one by one; returns the error that broke the input off."""
        for index in count():
            try:
                payload = next(payloads)
            except StopIteration:
                break
            except Exception as error:
                return error
            self._add(index, payload)
        return None

    def _failed(self, remaining: Iterable[Any] = ()) -> PublishFailed:
        # A payload that is refused at once overtakes those that wait to be sent.
        in_order = sorted(self._unsent, key=lambda one: one.index)
        return PublishFailed(self._sent, in_order, remaining)

    def _add(self, index: int, payload: Any) -> None:
        try:
            entry = _Entry(index, payload, self._compose_one(payload))
        except Exception as error:
            self._unsent.append(
                Unsent(index, payload, aws_errors.code(error), aws_errors.reason(error))
            )
            return
        # SQS limits the messages of a call together as it limits one.
        if self._waiting_bytes + entry.message.size > self._destination.max_message_bytes:
            self._send_waiting(entry)
            return
        self._waiting.append(entry)
        self._waiting_bytes += entry.message.size
        if len(self._waiting) == limits.BATCH_ENTRIES:
            self._send_waiting()

    def _send_waiting(self, *next_ones: _Entry) -> None:
        """Sends what waits. The next ones wait already, and so are not lost if the call fails."""
        batch, self._waiting = self._waiting, list(next_ones)
        self._waiting_bytes = sum(entry.message.size for entry in next_ones)
        if batch:
            self._send(batch)

    def _send(self, batch: list[_Entry]) -> None:
        for pause in _PAUSES_SECONDS:
            batch = self._send_once(batch, last=False)
            if not batch:
                return
            self._sleep(self._random.uniform(0, pause))
        self._send_once(batch, last=True)

    def _send_once(self, batch: list[_Entry], *, last: bool) -> list[_Entry]:
        """Sends a batch and returns what to send again: nothing, the last time."""
        # An id is a place: a job's own may hold any character, and stand twice in a batch.
        entries: list[Any] = [
            {"Id": str(place), **entry.message.fields} for place, entry in enumerate(batch)
        ]
        try:
            response = self._sqs.send_message_batch(
                QueueUrl=self._destination.queue_url, Entries=entries
            )
        except Exception as error:
            return self._after_failed_call(batch, error, last=last)
        confirmed = {answer["Id"] for answer in response.get("Successful", ())}
        failed = {answer["Id"]: answer for answer in response.get("Failed", ())}
        again = []
        for place, entry in enumerate(batch):
            answer = failed.get(str(place))
            if answer and not answer["SenderFault"] and not last:
                again.append(entry)
            elif answer:
                self._unsent.append(entry.unsent(answer["Code"], answer.get("Message", "")))
            elif str(place) in confirmed:
                self._sent += 1
            else:
                self._unsent.append(entry.unsent("NotConfirmed", "SQS's answer leaves it out"))
        return again

    def _after_failed_call(
        self, batch: list[_Entry], error: Exception, *, last: bool
    ) -> list[_Entry]:
        if aws_errors.may_pass(error) and not last:
            return batch
        about_a_message = aws_errors.is_about_a_message(error)
        if about_a_message and len(batch) > 1:
            self._send_apart(batch)
            return []
        self._unsent += [
            entry.unsent(aws_errors.code(error), aws_errors.reason(error)) for entry in batch
        ]
        if about_a_message:
            return []
        raise _MeetsEveryMessage from error

    def _send_apart(self, batch: list[_Entry]) -> None:
        left = iter(batch)
        try:
            for entry in left:
                self._send([entry])
        except _MeetsEveryMessage:
            self._waiting[:0] = left
            raise

"""A queue in memory, with AWS's rules."""

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Final, TypeAlias
from uuid import uuid4

from botocore.exceptions import ClientError

from redrive import limits
from redrive.compose import NOT_CARRIED
from redrive.message import message_bytes

Clock: TypeAlias = Callable[[], float]
"""Tells the time, in seconds."""

Fields: TypeAlias = dict[str, Any]

_DEDUPLICATION_SECONDS: Final = 300
_LONGEST_DELAY_SECONDS: Final = 900
_GROUP_ID: Final = re.compile(r"[!-~]{1,128}")


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    def advance(self, by: timedelta) -> None:
        """Moves it on."""
        self._now += by.total_seconds()


# The errors whose code on the wire has a prefix, since SQS once spoke another protocol; one of them
# has another name there.
_PREFIXED: Final = {
    name: f"AWS.SimpleQueueService.{name}"
    for name in (
        "BatchEntryIdsNotDistinct",
        "BatchRequestTooLong",
        "EmptyBatchRequest",
        "InvalidBatchEntryId",
        "MessageNotInflight",
        "TooManyEntriesInBatchRequest",
        "UnsupportedOperation",
    )
} | {"QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue"}


def aws_error(name: str, message: str = "", *, status: int = 400) -> ClientError:
    """An error as boto3 raises it, by its name in the API reference, with AWS's spelling of it."""
    error = {"Code": _PREFIXED.get(name, name), "QueryErrorCode": name, "Message": message or name}
    response: Any = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "InMemorySqs")


def invalid(parameter: str, reason: str) -> ClientError:
    return aws_error("InvalidParameterValue", f"{parameter} is invalid. Reason: {reason}")


@dataclass(slots=True, kw_only=True)
class StoredMessage:
    """A message in a queue. `system` are its system attributes, times are the clock's."""

    id: str
    body: str
    attributes: dict[str, Fields]
    system: dict[str, str]
    visible_at: float
    receives: int = 0
    received_at: float = 0
    receipt_handle: str = ""

    @property
    def group_id(self) -> str | None:
        """The FIFO group, or the tenant on a standard queue."""
        return self.system.get("MessageGroupId")

    def receive(self, receipt_handle: str, now: float, seconds: float) -> Fields:
        """Hides it for so long, and returns it as ReceiveMessage does, with all attributes."""
        self.receives += 1
        self.receipt_handle = receipt_handle
        self.received_at, self.visible_at = now, now + seconds
        self.system["ApproximateReceiveCount"] = str(self.receives)
        self.system.setdefault("ApproximateFirstReceiveTimestamp", _milliseconds(now))
        return {
            "MessageId": self.id,
            "ReceiptHandle": self.receipt_handle,
            "Body": self.body,
            "MD5OfBody": _md5(self.body),
            "Attributes": dict(self.system),
            "MessageAttributes": {name: dict(one) for name, one in self.attributes.items()},
        }


class InMemoryQueue:
    """One queue, FIFO if its name ends in `.fifo`. Its methods raise ClientError, as boto3 does.

    A message that was received `max_receive_count` times moves to the dead-letter queue when the
    next receive comes upon it, not before. In a FIFO queue a group waits while one of it is in
    flight, and a deduplication id is remembered for five minutes, whatever became of its message.
    """

    def __init__(
        self,
        name: str,
        *,
        visibility_timeout: timedelta = timedelta(seconds=30),
        dead_letter_queue: "InMemoryQueue | None" = None,
        max_receive_count: int = 10,
        max_message_bytes: int = limits.MESSAGE_BYTES,
        clock: Clock = time.time,
    ) -> None:
        self.fifo = name.endswith(".fifo")
        self.url = f"https://sqs.us-east-1.amazonaws.com/123456789012/{name}"
        self.arn = f"arn:aws:sqs:us-east-1:123456789012:{name}"
        self.max_message_bytes = max_message_bytes
        self.messages: list[StoredMessage] = []
        self._visibility_seconds = visibility_timeout.total_seconds()
        self._dead_letter_queue, self._max_receive_count = dead_letter_queue, max_receive_count
        self._clock = clock
        self._sent_under: dict[str, tuple[float, Fields]] = {}
        self._sequence = count(1)

    def __len__(self) -> int:
        """How many messages there are, in flight or not."""
        return len(self.messages)

    def send(self, request: Mapping[str, Any]) -> Fields:
        """Takes the fields of SendMessage, and answers as it does."""
        _check_message(self, request)
        deduplication_id = request.get("MessageDeduplicationId", "")
        sent_at, answer = self._sent_under.get(deduplication_id, (-math.inf, {}))
        if self._clock() < sent_at + _DEDUPLICATION_SECONDS:
            return answer
        stored = self._store(request)
        answer = {"MessageId": stored.id, "MD5OfMessageBody": _md5(stored.body)}
        if self.fifo:
            self._sent_under[deduplication_id] = self._clock(), answer
        return answer

    def _store(self, request: Mapping[str, Any]) -> StoredMessage:
        system = {"SenderId": "AIDATEST", "SentTimestamp": _milliseconds(self._clock())}
        for name in ("MessageGroupId", "MessageDeduplicationId"):
            if name in request:
                system[name] = request[name]
        for name, attribute in request.get("MessageSystemAttributes", {}).items():
            system[name] = attribute["StringValue"]
        if self.fifo:
            system["SequenceNumber"] = f"{next(self._sequence):020}"
        stored = StoredMessage(
            id=str(uuid4()),
            body=request["MessageBody"],
            attributes=dict(request.get("MessageAttributes", {})),
            system=system,
            visible_at=self._clock() + request.get("DelaySeconds", 0),
        )
        self.messages.append(stored)
        return stored

    def receive(self, limit: int = 10, visibility_seconds: float | None = None) -> list[Fields]:
        """Up to so many visible messages, as ReceiveMessage returns them with all attributes."""
        now = self._clock()
        seconds = self._visibility_seconds if visibility_seconds is None else visibility_seconds
        received: list[Fields] = []
        for stored in self._visible(now):
            if len(received) == limit:
                break
            if self._dead_letter_queue is not None and stored.receives >= self._max_receive_count:
                self._move(stored, self._dead_letter_queue)
            else:
                received.append(stored.receive(f"{self.arn}#{uuid4()}", now, seconds))
        return received

    def _visible(self, now: float) -> list[StoredMessage]:
        hidden_groups = {one.group_id for one in self.messages if one.visible_at > now}
        return [
            one
            for one in self.messages
            if one.visible_at <= now and not (self.fifo and one.group_id in hidden_groups)
        ]

    def _move(self, stored: StoredMessage, target: "InMemoryQueue") -> None:
        self.messages.remove(stored)
        stored.system["DeadLetterQueueSourceArn"] = self.arn
        if self.fifo:
            stored.system["SentTimestamp"] = _milliseconds(self._clock())
            stored.system["MessageDeduplicationId"] = stored.id
        target.messages.append(stored)

    def delete(self, receipt_handle: str) -> None:
        """Deletes the message whose newest handle this is. SQS is silent about any other."""
        stored = self._find(receipt_handle)
        if stored is not None:
            if self.fifo and stored.visible_at <= self._clock():
                raise invalid("ReceiptHandle", "The receipt handle has expired.")
            self.messages.remove(stored)

    def change_visibility(self, receipt_handle: str, seconds: float) -> None:
        """Hides the message for so long from now, within twelve hours of its receive."""
        stored, now = self._find(receipt_handle), self._clock()
        if not 0 <= seconds <= limits.VISIBILITY_SECONDS:
            raise invalid("VisibilityTimeout", "Must be between 0 and 43200.")
        if stored is None:
            raise invalid("ReceiptHandle", "Message does not exist or is not available.")
        if stored.visible_at <= now:
            raise aws_error("MessageNotInflight")
        if now + seconds > stored.received_at + limits.VISIBILITY_SECONDS:
            raise invalid("VisibilityTimeout", "Total VisibilityTimeout is beyond the limit.")
        stored.visible_at = now + seconds

    def _find(self, receipt_handle: str) -> StoredMessage | None:
        if not receipt_handle.startswith(self.arn):
            raise aws_error("ReceiptHandleIsInvalid")
        return next((one for one in self.messages if one.receipt_handle == receipt_handle), None)

    @property
    def attributes(self) -> dict[str, str]:
        """What GetQueueAttributes tells."""
        now = self._clock()
        hidden = [one for one in self.messages if one.visible_at > now]
        delayed = [one for one in hidden if not one.receives]
        attributes: Fields = {
            "QueueArn": self.arn,
            "ApproximateNumberOfMessages": len(self.messages) - len(hidden),
            "ApproximateNumberOfMessagesNotVisible": len(hidden) - len(delayed),
            "ApproximateNumberOfMessagesDelayed": len(delayed),
            "VisibilityTimeout": int(self._visibility_seconds),
            "MaximumMessageSize": self.max_message_bytes,
        }
        if self._dead_letter_queue is not None:
            target, limit = self._dead_letter_queue.arn, self._max_receive_count
            policy = {"deadLetterTargetArn": target, "maxReceiveCount": limit}
            attributes["RedrivePolicy"] = json.dumps(policy)
        return {name: str(value) for name, value in attributes.items()}


def _check_message(queue: InMemoryQueue, request: Mapping[str, Any]) -> None:
    body, attributes = request.get("MessageBody"), request.get("MessageAttributes", {})
    if not body:
        raise aws_error("MissingParameter", "The request must contain the parameter MessageBody.")
    if NOT_CARRIED.search(body):
        raise aws_error("InvalidMessageContents", "Invalid characters found.")
    if len(attributes) > limits.ATTRIBUTES:
        raise invalid("MessageAttributes", "Number of message attributes exceeds 10.")
    for name, attribute in attributes.items():
        _check_attribute(name, attribute)
    if request_bytes(request) > queue.max_message_bytes:
        raise invalid("MessageBody", f"Must be shorter than {queue.max_message_bytes} bytes.")
    _check_order(queue, request)


def _check_attribute(name: str, attribute: Mapping[str, Any]) -> None:
    if {"StringListValues", "BinaryListValues"} & attribute.keys():
        raise aws_error("UnsupportedOperation", "List values are reserved for future use.")
    kind = "Binary" if attribute["DataType"].partition(".")[0] == "Binary" else "String"
    value = attribute.get(f"{kind}Value")
    if not value:
        raise invalid(name, f"Must contain a non-empty value of type '{kind}'.")
    if kind == "String" and NOT_CARRIED.search(value):
        raise invalid(name, "Invalid characters found.")


def _check_order(queue: InMemoryQueue, request: Mapping[str, Any]) -> None:
    if queue.fifo and "MessageGroupId" not in request:
        raise aws_error("MissingParameter", "The request must contain a MessageGroupId.")
    if queue.fifo != ("MessageDeduplicationId" in request):
        raise invalid("MessageDeduplicationId", "Needed on FIFO queues, refused on others.")
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        if name in request and not _GROUP_ID.fullmatch(request[name]):
            raise invalid(name, "Only alphanumeric and punctuation characters, 128 at most.")
    longest = 0 if queue.fifo else _LONGEST_DELAY_SECONDS
    if not 0 <= request.get("DelaySeconds", 0) <= longest:
        raise invalid("DelaySeconds", f"Must be between 0 and {longest}.")


def request_bytes(request: Mapping[str, Any]) -> int:
    attributes = {
        name: {part: value for part, value in one.items() if isinstance(value, str | bytes)}
        for name, one in request.get("MessageAttributes", {}).items()
    }
    return message_bytes(request.get("MessageBody", ""), attributes)


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

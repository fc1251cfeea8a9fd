"""Test doubles for code that publishes or runs jobs: no AWS, no sockets, no sleeping.

    clock = ManualClock()
    dead = InMemoryQueue("send_email-dead", clock=clock)
    queue = InMemoryQueue("send_email", clock=clock, dead_letter_queue=dead, max_receive_count=2)
    sqs = InMemorySqs(queue, dead)

    sqs.send_message(QueueUrl=queue.url, MessageBody='{"email_id": "receipt:ord_1"}')
    delivery = deliver(worker, queue)          # receives, invokes, deletes, as Lambda's poller does
    assert delivery.deleted and len(queue) == 0

    clock.advance(timedelta(seconds=30))       # what was not deleted is visible again

`InMemorySqs` speaks boto3's SQS client, and refuses what AWS refuses where emulators are lenient. The
rules are those of https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/ and
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

import base64
import hashlib
import json
import math
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias
from uuid import uuid4

from botocore.exceptions import ClientError

from redrive import limits
from redrive.message import message_bytes
from redrive.publisher import NOT_CARRIED

Clock: TypeAlias = Callable[[], float]
"""Tells the time in seconds since the epoch."""

Fields: TypeAlias = dict[str, Any]

_DEDUPLICATION_SECONDS: Final = 300
_LONGEST_DELAY_SECONDS: Final = 900
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_GROUP_ID: Final = re.compile(r"[!-~]{1,128}")
# The errors that AWS spells with its prefix, since it once spoke another protocol.
_PREFIXED: Final = frozenset(
    {
        "BatchEntryIdsNotDistinct",
        "BatchRequestTooLong",
        "EmptyBatchRequest",
        "InvalidBatchEntryId",
        "MessageNotInflight",
        "NonExistentQueue",
        "TooManyEntriesInBatchRequest",
        "UnsupportedOperation",
    }
)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    def advance(self, by: timedelta) -> None:
        """Moves the clock on."""
        self._now += by.total_seconds()


def aws_error(code: str, message: str = "", *, status: int = 400) -> ClientError:
    """An error as boto3 raises it. `code` without AWS's prefix, which is added where AWS has one."""
    spelled = f"AWS.SimpleQueueService.{code}" if code in _PREFIXED else code
    error = {"Code": spelled, "QueryErrorCode": code, "Message": message or code}
    response: Any = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "InMemory")


def _invalid(parameter: str, reason: str) -> ClientError:
    return aws_error("InvalidParameterValue", f"{parameter} is invalid. Reason: {reason}")


# --- a queue --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class StoredMessage:
    """A message in a queue; `system` are its system attributes, times are the clock's seconds."""

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

    def receive(self, now: float, seconds: float, receipt_handle: str) -> Fields:
        """Hides the message for so long; returns it as ReceiveMessage does, with all attributes."""
        self.receives += 1
        self.received_at, self.visible_at = now, now + seconds
        self.receipt_handle = receipt_handle
        self.system["ApproximateReceiveCount"] = str(self.receives)
        self.system.setdefault("ApproximateFirstReceiveTimestamp", _milliseconds(now))
        received: Fields = {
            "MessageId": self.id,
            "ReceiptHandle": receipt_handle,
            "Body": self.body,
            "MD5OfBody": _md5(self.body),
            "Attributes": dict(self.system),
        }
        if self.attributes:
            received["MessageAttributes"] = {n: dict(a) for n, a in self.attributes.items()}
        return received


class InMemoryQueue:
    """One queue; FIFO if its name ends in `.fifo`. Its methods raise ClientError, as boto3 does.

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
        self.name, self.fifo = name, name.endswith(".fifo")
        self.url = f"https://sqs.us-east-1.amazonaws.com/123456789012/{name}"
        self.arn = f"arn:aws:sqs:us-east-1:123456789012:{name}"
        self.max_message_bytes = max_message_bytes
        self.messages: list[StoredMessage] = []
        self._visibility_seconds = visibility_timeout.total_seconds()
        self._dead_letter_queue, self._max_receive_count = dead_letter_queue, max_receive_count
        self._clock = clock
        self._sent_under: dict[str, tuple[float, Fields]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        """How many messages there are, in flight or not."""
        return len(self.messages)

    def send(self, message: Mapping[str, Any]) -> Fields:
        """Takes the fields of SendMessage, and answers as it does."""
        _check_message(self, message)
        deduplication_id = message.get("MessageDeduplicationId", "")
        sent_at, answer = self._sent_under.get(deduplication_id, (-math.inf, {}))
        if self._clock() < sent_at + _DEDUPLICATION_SECONDS:
            return answer
        stored = self._store(message)
        answer = {"MessageId": stored.id, "MD5OfMessageBody": _md5(stored.body)}
        if self.fifo:
            answer["SequenceNumber"] = stored.system["SequenceNumber"]
            self._sent_under[deduplication_id] = self._clock(), answer
        return answer

    def _store(self, message: Mapping[str, Any]) -> StoredMessage:
        system = {"SenderId": "AIDATEST", "SentTimestamp": _milliseconds(self._clock())}
        for name in ("MessageGroupId", "MessageDeduplicationId"):
            if name in message:
                system[name] = message[name]
        for name, attribute in message.get("MessageSystemAttributes", {}).items():
            system[name] = attribute["StringValue"]
        if self.fifo:
            system["SequenceNumber"] = f"{next(self._numbers):020}"
        stored = StoredMessage(
            id=str(uuid4()),
            body=message["MessageBody"],
            attributes=dict(message.get("MessageAttributes", {})),
            system=system,
            visible_at=self._clock() + message.get("DelaySeconds", 0),
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
                received.append(stored.receive(now, seconds, f"{self.name}#{uuid4()}"))
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
        stored.receipt_handle = ""
        if self.fifo:
            stored.system["SentTimestamp"] = _milliseconds(self._clock())
            stored.system["MessageDeduplicationId"] = stored.id
        target.messages.append(stored)

    def delete(self, receipt_handle: str) -> None:
        """Deletes the message that was last received with this handle; after a later receive of it
        SQS answers yes all the same, and keeps it.
        """
        stored = self._find(receipt_handle)
        if stored is None:
            return
        if self.fifo and stored.visible_at <= self._clock():
            raise _invalid("ReceiptHandle", "The receipt handle has expired.")
        self.messages.remove(stored)

    def change_visibility(self, receipt_handle: str, seconds: float) -> None:
        """Hides the message for so long from now, within twelve hours of its receive."""
        stored, now = self._find(receipt_handle), self._clock()
        if not 0 <= seconds <= limits.VISIBILITY_SECONDS:
            raise _invalid("VisibilityTimeout", "Must be between 0 and 43200.")
        if stored is None:
            raise _invalid("ReceiptHandle", "Message does not exist or is not available.")
        if stored.visible_at <= now:
            raise aws_error("MessageNotInflight")
        if now + seconds > stored.received_at + limits.VISIBILITY_SECONDS:
            raise _invalid("VisibilityTimeout", "Total VisibilityTimeout is beyond the limit.")
        stored.visible_at = now + seconds

    def _find(self, receipt_handle: str) -> StoredMessage | None:
        if not receipt_handle.startswith(f"{self.name}#"):
            raise aws_error("ReceiptHandleIsInvalid")
        return next((one for one in self.messages if one.receipt_handle == receipt_handle), None)

    @property
    def attributes(self) -> dict[str, str]:
        """What GetQueueAttributes tells of the queue."""
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


def _check_message(queue: InMemoryQueue, message: Mapping[str, Any]) -> None:
    body, attributes = message.get("MessageBody"), message.get("MessageAttributes", {})
    if not body:
        raise aws_error("MissingParameter", "The request must contain the parameter MessageBody.")
    if NOT_CARRIED.search(body):
        raise aws_error("InvalidMessageContents", "Invalid characters found.")
    if len(attributes) > limits.ATTRIBUTES:
        raise _invalid("MessageAttributes", "The number of attributes exceeds the maximum [10].")
    for name, attribute in attributes.items():
        _check_attribute(name, attribute)
    if message_bytes(body, attributes) > queue.max_message_bytes:
        raise _invalid("MessageBody", f"Must be shorter than {queue.max_message_bytes} bytes.")
    _check_order(queue, message)


def _check_attribute(name: str, attribute: Mapping[str, Any]) -> None:
    if {"StringListValues", "BinaryListValues"} & attribute.keys():
        raise aws_error("UnsupportedOperation", "List values are reserved for future use.")
    kind = "Binary" if attribute["DataType"].partition(".")[0] == "Binary" else "String"
    value = attribute.get(f"{kind}Value")
    if not value:
        raise _invalid(name, f"Must contain a non-empty value of type '{kind}'.")
    if kind == "String" and NOT_CARRIED.search(value):
        raise _invalid(name, "Invalid characters found.")


def _check_order(queue: InMemoryQueue, message: Mapping[str, Any]) -> None:
    if queue.fifo:
        if "MessageGroupId" not in message:
            raise aws_error("MissingParameter", "The request must contain a MessageGroupId.")
        if "MessageDeduplicationId" not in message:
            raise _invalid("MessageDeduplicationId", "It must be provided explicitly.")
        if "DelaySeconds" in message:
            raise _invalid("DelaySeconds", "It is not valid for this queue type.")
    elif "MessageDeduplicationId" in message:
        raise _invalid("MessageDeduplicationId", "It is not valid for this queue type.")
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        if name in message and not _GROUP_ID.fullmatch(message[name]):
            raise _invalid(name, "It can only include alphanumeric and punctuation characters.")
    if not 0 <= message.get("DelaySeconds", 0) <= _LONGEST_DELAY_SECONDS:
        raise _invalid("DelaySeconds", "Must be between 0 and 900.")


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


# --- boto3's client -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fault:
    error: ClientError | Exception
    places: Collection[int]
    answer_lost: bool


class InMemorySqs:
    """The part of boto3's SQS client that Redrive calls, over queues in memory.

    `calls` lists every call as (operation, its arguments), failed ones too.
    """

    def __init__(self, *queues: InMemoryQueue) -> None:
        self.calls: list[tuple[str, Fields]] = []
        self._queues = {queue.url: queue for queue in queues}
        self._faults: defaultdict[str, deque[_Fault]] = defaultdict(deque)

    def fail_next(
        self,
        operation: str,
        error: Exception | str,
        *,
        times: int = 1,
        entries: Collection[int] = (),
        answer_lost: bool = False,
    ) -> None:
        """Lets the next calls of `operation` (as `send_message_batch`) fail.

        `error` is raised; a text stands for `aws_error(text)`. With `entries`, only those places of a
        batch fail: by the sender's fault, unless the error's HTTP status is 500 or above. With
        `answer_lost` the call is carried out before the error is raised.
        """
        raised = aws_error(error) if isinstance(error, str) else error
        self._faults[operation] += [_Fault(raised, entries, answer_lost)] * times

    def send_message(self, **request: Any) -> Fields:
        """SendMessage."""
        return self._call("send_message", request, lambda queue, _: queue.send(request))

    def send_message_batch(self, **request: Any) -> Fields:
        """SendMessageBatch: its messages together are within the limit of one."""

        def send(queue: InMemoryQueue, fault: _Fault | None) -> Fields:
            entries = request["Entries"]
            together = sum(
                message_bytes(one["MessageBody"], one.get("MessageAttributes", {}))
                for one in entries
            )
            if together > queue.max_message_bytes:
                raise aws_error("BatchRequestTooLong")
            return _each(entries, queue.send, fault)

        return self._call("send_message_batch", request, send)

    def receive_message(self, **request: Any) -> Fields:
        """ReceiveMessage, which returns at once; attributes come only if they are asked for."""

        def receive(queue: InMemoryQueue, _: _Fault | None) -> Fields:
            limit = request.get("MaxNumberOfMessages", 1)
            if not 1 <= limit <= limits.BATCH_ENTRIES:
                raise _invalid("MaxNumberOfMessages", "Must be between 1 and 10.")
            messages = queue.receive(limit, request.get("VisibilityTimeout"))
            system = request.get("MessageSystemAttributeNames") or request.get("AttributeNames")
            for message in messages:
                _keep(message, "Attributes", system)
                _keep(message, "MessageAttributes", request.get("MessageAttributeNames"))
            return {"Messages": messages} if messages else {}

        return self._call("receive_message", request, receive)

    def delete_message(self, **request: Any) -> Fields:
        """DeleteMessage."""
        return self._call("delete_message", request, lambda queue, _: _delete(queue, request))

    def delete_message_batch(self, **request: Any) -> Fields:
        """DeleteMessageBatch."""
        return self._call(
            "delete_message_batch",
            request,
            lambda queue, fault: _each(request["Entries"], partial(_delete, queue), fault),
        )

    def change_message_visibility(self, **request: Any) -> Fields:
        """ChangeMessageVisibility."""
        return self._call(
            "change_message_visibility", request, lambda queue, _: _change(queue, request)
        )

    def change_message_visibility_batch(self, **request: Any) -> Fields:
        """ChangeMessageVisibilityBatch."""
        return self._call(
            "change_message_visibility_batch",
            request,
            lambda queue, fault: _each(request["Entries"], partial(_change, queue), fault),
        )

    def get_queue_attributes(self, **request: Any) -> Fields:
        """GetQueueAttributes."""

        def tell(queue: InMemoryQueue, _: _Fault | None) -> Fields:
            answer: Fields = {"Attributes": queue.attributes}
            _keep(answer, "Attributes", request.get("AttributeNames"))
            return answer

        return self._call("get_queue_attributes", request, tell)

    def _call(
        self,
        operation: str,
        request: Fields,
        carry_out: Callable[[InMemoryQueue, _Fault | None], Fields],
    ) -> Fields:
        self.calls.append((operation, request))
        faults = self._faults[operation]
        fault = faults.popleft() if faults else None
        whole = fault if fault and not fault.places else None
        if whole and not whole.answer_lost:
            raise whole.error
        queue = self._queues.get(request["QueueUrl"])
        if queue is None:
            raise aws_error("NonExistentQueue", "The specified queue does not exist.")
        answer = carry_out(queue, fault)
        if whole:
            raise whole.error
        return answer


def _each(
    entries: Sequence[Fields], carry_out: Callable[[Fields], Fields], fault: _Fault | None
) -> Fields:
    """Carries out the entries of a batch, each for itself."""
    _check_entries(entries)
    answer: defaultdict[str, list[Fields]] = defaultdict(list)
    for place, entry in enumerate(entries):
        try:
            if fault and place in fault.places:
                raise fault.error
            answer["Successful"].append({"Id": entry["Id"], **carry_out(entry)})
        except ClientError as error:
            told, status = error.response["Error"], error.response["ResponseMetadata"]
            answer["Failed"].append(
                {
                    "Id": entry["Id"],
                    "Code": told["Code"],
                    "Message": told["Message"],
                    "SenderFault": status["HTTPStatusCode"] < 500,
                }
            )
    return dict(answer)


def _check_entries(entries: Sequence[Fields]) -> None:
    ids = [entry["Id"] for entry in entries]
    if not ids:
        raise aws_error("EmptyBatchRequest")
    if len(ids) > limits.BATCH_ENTRIES:
        raise aws_error("TooManyEntriesInBatchRequest")
    if not all(_ENTRY_ID.fullmatch(one) for one in ids):
        raise aws_error("InvalidBatchEntryId")
    if len(set(ids)) < len(ids):
        raise aws_error("BatchEntryIdsNotDistinct")


def _delete(queue: InMemoryQueue, entry: Fields) -> Fields:
    queue.delete(entry["ReceiptHandle"])
    return {}


def _change(queue: InMemoryQueue, entry: Fields) -> Fields:
    queue.change_visibility(entry["ReceiptHandle"], entry["VisibilityTimeout"])
    return {}


def _keep(holder: Fields, field: str, names: Sequence[str] | None) -> None:
    """Leaves those that were asked for by name; none if no names were given."""
    asked = set(names or ())
    values = holder.pop(field, {})
    kept = {name: value for name, value in values.items() if asked & {name, "All", ".*"}}
    if kept:
        holder[field] = kept


# --- Lambda ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeContext:
    """What Lambda gives a handler beside the event. Made by `lambda_context`."""

    function_name: str
    aws_request_id: str
    ends_at: float
    clock: Clock
    function_version: str = "$LATEST"
    memory_limit_in_mb: int = 512

    @property
    def invoked_function_arn(self) -> str:
        """The function's ARN."""
        return f"arn:aws:lambda:us-east-1:123456789012:function:{self.function_name}"

    @property
    def log_group_name(self) -> str:
        """The function's log group."""
        return f"/aws/lambda/{self.function_name}"

    @property
    def log_stream_name(self) -> str:
        """The log stream of the execution environment."""
        return f"2026/01/01/[{self.function_version}]{self.aws_request_id}"

    def get_remaining_time_in_millis(self) -> int:
        """Until Lambda ends the invocation."""
        return max(0, int((self.ends_at - self.clock()) * 1000))


def lambda_context(
    remaining: timedelta = timedelta(seconds=60),
    *,
    function_name: str = "worker",
    request_id: str | None = None,
    clock: Clock = time.monotonic,
) -> FakeContext:
    """A context with so much time left, by `clock`."""
    return FakeContext(
        function_name=function_name,
        aws_request_id=request_id or str(uuid4()),
        ends_at=clock() + remaining.total_seconds(),
        clock=clock,
    )


def lambda_event(messages: Iterable[Mapping[str, Any]], queue: InMemoryQueue) -> Fields:
    """The event that Lambda makes of received messages (received with all their attributes)."""
    return {"Records": [_record(message, queue) for message in messages]}


def _record(message: Mapping[str, Any], queue: InMemoryQueue) -> Fields:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "md5OfBody": message["MD5OfBody"],
        "attributes": message["Attributes"],
        "messageAttributes": {
            name: _record_attribute(attribute)
            for name, attribute in message.get("MessageAttributes", {}).items()
        },
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.arn,
        "awsRegion": "us-east-1",
    }


def _record_attribute(attribute: Mapping[str, Any]) -> Fields:
    record: Fields = {"dataType": attribute["DataType"]}
    if "BinaryValue" in attribute:
        record["binaryValue"] = base64.b64encode(attribute["BinaryValue"]).decode()
    else:
        record["stringValue"] = attribute["StringValue"]
    return record | {"stringListValues": [], "binaryListValues": []}


@dataclass(frozen=True, slots=True)
class Delivery:
    """One invocation by the event source mapping: the ids of its messages, and what became of them.

    What was not `deleted` stays hidden until its visibility timeout ends. `error` is what the
    handler raised.
    """

    received: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    response: Any = None
    error: BaseException | None = None


def deliver(
    handler: Callable[[Any, Any], Any],
    queue: InMemoryQueue,
    context: FakeContext | None = None,
    *,
    batch_size: int = 10,
) -> Delivery:
    """Receives one batch, invokes the handler, and deletes what it does not report as failed.

    The whole batch stays in the queue where the handler raises, is out of time at its end, or
    returns what Lambda takes for a failure. An empty queue invokes nothing.
    """
    messages = queue.receive(batch_size)
    received = tuple(message["MessageId"] for message in messages)
    if not messages:
        return Delivery()
    context = context or lambda_context()
    try:
        response = handler(lambda_event(messages, queue), context)
    except (Exception, SystemExit) as error:
        return Delivery(received, error=error)
    failed = _failed(response, set(received))
    if context.get_remaining_time_in_millis() == 0:
        failed = set(received)
    for message in messages:
        if message["MessageId"] not in failed:
            queue.delete(message["ReceiptHandle"])
    deleted = tuple(one for one in received if one not in failed)
    return Delivery(received, deleted, response)


def _failed(response: Any, ids: set[str]) -> set[str]:
    """The failed ones of a batch, by the response to it: all of them, if it is not to be read."""
    try:
        response = json.loads(json.dumps(response))
    except (TypeError, ValueError):
        return ids
    if response in (None, {}):
        return set()
    try:
        failed = {one["itemIdentifier"] for one in response["batchItemFailures"] or ()}
    except (TypeError, KeyError):
        return ids
    return failed if failed <= ids else ids

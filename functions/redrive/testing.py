"""Test doubles for code that publishes or runs jobs: no AWS, no sockets, no sleeping.

    clock = ManualClock()
    dead = InMemoryQueue("send_email-dead", clock=clock)
    queue = InMemoryQueue("send_email", dead_letter_queue=dead, max_receive_count=2, clock=clock)
    sqs = InMemorySqs(queue, dead)

    sqs.send_message(QueueUrl=queue.url, MessageBody='{"email_id": "receipt:ord_1"}')
    delivery = deliver(worker, queue)     # receives, invokes, deletes, as Lambda's poller does
    assert len(queue) == 0

    clock.advance(timedelta(seconds=30))  # whatever was not deleted is visible again

`InMemorySqs` speaks boto3's SQS client and refuses what AWS refuses, where emulators are lenient:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

import base64
import hashlib
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from threading import Lock
from typing import Any, Final, TypeAlias
from uuid import uuid4

from botocore.exceptions import ClientError

from redrive import limits
from redrive.message import message_bytes
from redrive.publisher import NOT_CARRIED

Clock: TypeAlias = Callable[[], float]
"""Tells the time, in seconds."""

Fields: TypeAlias = dict[str, Any]

_DEDUPLICATION_SECONDS: Final = 300
_LONGEST_DELAY_SECONDS: Final = 900
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
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


# --- errors ---------------------------------------------------------------------------------------

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


def _invalid(parameter: str, reason: str) -> ClientError:
    return aws_error("InvalidParameterValue", f"{parameter} is invalid. Reason: {reason}")


# --- a queue --------------------------------------------------------------------------------------


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
        raise _invalid("MessageAttributes", "Number of message attributes exceeds 10.")
    for name, attribute in attributes.items():
        _check_attribute(name, attribute)
    if _bytes(request) > queue.max_message_bytes:
        raise _invalid("MessageBody", f"Must be shorter than {queue.max_message_bytes} bytes.")
    _check_order(queue, request)


def _check_attribute(name: str, attribute: Mapping[str, Any]) -> None:
    if {"StringListValues", "BinaryListValues"} & attribute.keys():
        raise aws_error("UnsupportedOperation", "List values are reserved for future use.")
    kind = "Binary" if attribute["DataType"].partition(".")[0] == "Binary" else "String"
    value = attribute.get(f"{kind}Value")
    if not value:
        raise _invalid(name, f"Must contain a non-empty value of type '{kind}'.")
    if kind == "String" and NOT_CARRIED.search(value):
        raise _invalid(name, "Invalid characters found.")


def _check_order(queue: InMemoryQueue, request: Mapping[str, Any]) -> None:
    if queue.fifo and "MessageGroupId" not in request:
        raise aws_error("MissingParameter", "The request must contain a MessageGroupId.")
    if queue.fifo != ("MessageDeduplicationId" in request):
        raise _invalid("MessageDeduplicationId", "Needed on FIFO queues, refused on others.")
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        if name in request and not _GROUP_ID.fullmatch(request[name]):
            raise _invalid(name, "Only alphanumeric and punctuation characters, 128 at most.")
    longest = 0 if queue.fifo else _LONGEST_DELAY_SECONDS
    if not 0 <= request.get("DelaySeconds", 0) <= longest:
        raise _invalid("DelaySeconds", f"Must be between 0 and {longest}.")


def _bytes(request: Mapping[str, Any]) -> int:
    attributes = {
        name: {part: value for part, value in one.items() if isinstance(value, str | bytes)}
        for name, one in request.get("MessageAttributes", {}).items()
    }
    return message_bytes(request.get("MessageBody", ""), attributes)


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


# --- boto3's client -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fault:
    error: Exception
    answer_lost: bool
    entries: Collection[int]


class InMemorySqs:
    """The calls of boto3's SQS client that Redrive uses, over queues in memory.

    `calls` lists every call, the failed ones too, as (operation, arguments). Threads may share it.
    """

    def __init__(self, *queues: InMemoryQueue) -> None:
        self.calls: list[tuple[str, Fields]] = []
        self._queues = {queue.url: queue for queue in queues}
        self._faults: defaultdict[str, list[_Fault]] = defaultdict(list)
        self._lock = Lock()

    def fail_next(
        self,
        operation: str,
        error: Exception | str,
        *,
        times: int = 1,
        answer_lost: bool = False,
        entries: Collection[int] = (),
    ) -> None:
        """Makes the next calls of `operation`, such as "send_message_batch", fail.

        `error` is what they raise; a text stands for `aws_error(text)`. With `answer_lost` a call
        is carried out first. With `entries` only these places of a batch fail: for the sender's
        fault, unless the HTTP status of the error is 500 or more.
        """
        raised = aws_error(error) if isinstance(error, str) else error
        self._faults[operation] += [_Fault(raised, answer_lost, entries)] * times

    def send_message(self, **request: Any) -> Fields:
        """SendMessage."""
        return self._call("send_message", request, InMemoryQueue.send)

    def send_message_batch(self, **request: Any) -> Fields:
        """SendMessageBatch, whose messages together are limited as one is."""
        return self._call_batch("send_message_batch", request, InMemoryQueue.send)

    def receive_message(self, **request: Any) -> Fields:
        """ReceiveMessage: it returns at once, and with the attributes that were asked for."""
        return self._call("receive_message", request, _receive)

    def delete_message(self, **request: Any) -> Fields:
        """DeleteMessage."""
        return self._call("delete_message", request, _delete)

    def delete_message_batch(self, **request: Any) -> Fields:
        """DeleteMessageBatch."""
        return self._call_batch("delete_message_batch", request, _delete)

    def change_message_visibility(self, **request: Any) -> Fields:
        """ChangeMessageVisibility."""
        return self._call("change_message_visibility", request, _change_visibility)

    def change_message_visibility_batch(self, **request: Any) -> Fields:
        """ChangeMessageVisibilityBatch."""
        return self._call_batch("change_message_visibility_batch", request, _change_visibility)

    def get_queue_attributes(self, **request: Any) -> Fields:
        """GetQueueAttributes."""
        return self._call("get_queue_attributes", request, _get_attributes)

    def _call(self, operation: str, request: Fields, carry_out: "_CarryOut") -> Fields:
        with self._lock:
            return self._call_alone(operation, request, carry_out)

    def _call_alone(self, operation: str, request: Fields, carry_out: "_CarryOut") -> Fields:
        self.calls.append((operation, request))
        faults = self._faults[operation]
        fault = faults.pop(0) if faults and not faults[0].entries else None
        if fault and not fault.answer_lost:
            raise fault.error
        queue = self._queues.get(request["QueueUrl"])
        if queue is None:
            raise aws_error("QueueDoesNotExist", "The specified queue does not exist.")
        answer = carry_out(queue, request)
        if fault:
            raise fault.error
        return answer

    def _call_batch(self, operation: str, request: Fields, carry_out: "_CarryOut") -> Fields:
        def each(queue: InMemoryQueue, request: Fields) -> Fields:
            _check_entries(queue, request["Entries"])
            faults = self._faults[operation]
            fault = faults.pop(0) if faults and faults[0].entries else None
            answer: defaultdict[str, list[Fields]] = defaultdict(list)
            for place, entry in enumerate(request["Entries"]):
                try:
                    if fault and place in fault.entries:
                        raise fault.error
                    answer["Successful"].append({"Id": entry["Id"], **carry_out(queue, entry)})
                except ClientError as error:
                    answer["Failed"].append({"Id": entry["Id"], **_failure(error)})
            return dict(answer)

        return self._call(operation, request, each)


_CarryOut: TypeAlias = Callable[[InMemoryQueue, Fields], Fields]


def _check_entries(queue: InMemoryQueue, entries: Sequence[Fields]) -> None:
    ids = [entry["Id"] for entry in entries]
    if not ids:
        raise aws_error("EmptyBatchRequest")
    if len(ids) > limits.BATCH_ENTRIES:
        raise aws_error("TooManyEntriesInBatchRequest")
    if not all(_ENTRY_ID.fullmatch(one) for one in ids):
        raise aws_error("InvalidBatchEntryId")
    if len(set(ids)) < len(ids):
        raise aws_error("BatchEntryIdsNotDistinct")
    if sum(_bytes(entry) for entry in entries) > queue.max_message_bytes:
        raise aws_error("BatchRequestTooLong")


def _failure(error: ClientError) -> Fields:
    told, status = error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    return {"Code": told["Code"], "Message": told["Message"], "SenderFault": status < 500}


def _receive(queue: InMemoryQueue, request: Fields) -> Fields:
    limit = request.get("MaxNumberOfMessages", 1)
    if not 1 <= limit <= limits.BATCH_ENTRIES:
        raise _invalid("MaxNumberOfMessages", "Must be between 1 and 10.")
    messages = queue.receive(limit, request.get("VisibilityTimeout"))
    for message in messages:
        system = request.get("MessageSystemAttributeNames") or request.get("AttributeNames")
        _keep(message, "Attributes", system)
        _keep(message, "MessageAttributes", request.get("MessageAttributeNames"))
    return {"Messages": messages} if messages else {}


def _delete(queue: InMemoryQueue, request: Fields) -> Fields:
    queue.delete(request["ReceiptHandle"])
    return {}


def _change_visibility(queue: InMemoryQueue, request: Fields) -> Fields:
    queue.change_visibility(request["ReceiptHandle"], request["VisibilityTimeout"])
    return {}


def _get_attributes(queue: InMemoryQueue, request: Fields) -> Fields:
    answer: Fields = {"Attributes": queue.attributes}
    _keep(answer, "Attributes", request.get("AttributeNames"))
    return answer


def _keep(holder: Fields, field: str, names: Collection[str] | None) -> None:
    """Leaves only what was asked for by name: nothing, if there are no names."""
    asked = set(names or ())
    kept = {name: one for name, one in holder.pop(field).items() if asked & {name, "All", ".*"}}
    if kept:
        holder[field] = kept


# --- Lambda ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeContext:
    """What Lambda gives a handler beside the event; `lambda_context` makes one."""

    function_name: str
    aws_request_id: str
    invoked_function_arn: str
    log_group_name: str
    log_stream_name: str
    ends_at: float
    clock: Clock
    function_version: str = "$LATEST"
    memory_limit_in_mb: int = 512

    def get_remaining_time_in_millis(self) -> int:
        """The time until Lambda ends the invocation."""
        return max(0, int((self.ends_at - self.clock()) * 1000))


def lambda_context(
    remaining: timedelta = timedelta(seconds=60),
    *,
    function_name: str = "worker",
    clock: Clock = time.monotonic,
) -> FakeContext:
    """The context of an invocation that has so much time left, by `clock`."""
    return FakeContext(
        function_name=function_name,
        aws_request_id=str(uuid4()),
        invoked_function_arn=f"arn:aws:lambda:us-east-1:123456789012:function:{function_name}",
        log_group_name=f"/aws/lambda/{function_name}",
        log_stream_name="2026/01/01/[$LATEST]0123456789abcdef",
        ends_at=clock() + remaining.total_seconds(),
        clock=clock,
    )


def lambda_event(messages: Iterable[Mapping[str, Any]], queue: InMemoryQueue) -> Fields:
    """The event that Lambda makes of messages which were received with all their attributes."""
    return {"Records": [_record(message, queue) for message in messages]}


def _record(message: Mapping[str, Any], queue: InMemoryQueue) -> Fields:
    attributes = message.get("MessageAttributes", {})
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "md5OfBody": message["MD5OfBody"],
        "attributes": message["Attributes"],
        "messageAttributes": {name: _record_attribute(one) for name, one in attributes.items()},
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.arn,
        "awsRegion": "us-east-1",
    }


def _record_attribute(attribute: Mapping[str, Any]) -> Fields:
    record: Fields = {"stringListValues": [], "binaryListValues": []}
    if "BinaryValue" in attribute:
        record["binaryValue"] = base64.b64encode(attribute["BinaryValue"]).decode()
    else:
        record["stringValue"] = attribute["StringValue"]
    return record | {"dataType": attribute["DataType"]}


@dataclass(frozen=True, slots=True)
class Delivery:
    """One invocation by Lambda's poller: the ids of its messages, and what became of them.

    What is not in `deleted` stays hidden until its visibility timeout ends. `error` is what the
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
    """Receives a batch, invokes the handler, and deletes what it does not report as failed.

    The whole batch stays in the queue where the handler raises, has no time left at its end, or
    returns what Lambda takes for a failure. An empty queue invokes nothing.
    """
    messages = queue.receive(batch_size)
    if not messages:
        return Delivery()
    handles = {message["MessageId"]: message["ReceiptHandle"] for message in messages}
    context = context or lambda_context()
    try:
        response = handler(lambda_event(messages, queue), context)
    except (Exception, SystemExit) as error:
        return Delivery(tuple(handles), error=error)
    timed_out = context.get_remaining_time_in_millis() == 0
    failed = handles.keys() if timed_out else _failed(response, handles.keys())
    deleted = tuple(one for one in handles if one not in failed)
    for message_id in deleted:
        queue.delete(handles[message_id])
    return Delivery(tuple(handles), deleted, response)


def _failed(response: Any, batch: Collection[str]) -> Collection[str]:
    """What of a batch failed, by the handler's response: all of it, if that cannot be read."""
    try:
        response = json.loads(json.dumps(response))
        if response is None or response == {}:
            return ()
        failed = {one["itemIdentifier"] for one in response["batchItemFailures"] or ()}
    except (TypeError, ValueError, KeyError):
        return batch
    return failed if failed.issubset(batch) else batch

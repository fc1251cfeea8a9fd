"""The event source mapping, played: the event, the context, and what becomes of the response."""

import base64
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from redrive.testing.queue import Clock, Fields, InMemoryQueue


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

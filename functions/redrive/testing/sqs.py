"""Boto3's SQS client, over queues in memory."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeAlias

from botocore.exceptions import ClientError

from redrive import limits
from redrive.testing.queue import Fields, InMemoryQueue, aws_error, invalid, request_bytes

_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")


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
    if sum(request_bytes(entry) for entry in entries) > queue.max_message_bytes:
        raise aws_error("BatchRequestTooLong")


def _failure(error: ClientError) -> Fields:
    told, status = error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    return {"Code": told["Code"], "Message": told["Message"], "SenderFault": status < 500}


def _receive(queue: InMemoryQueue, request: Fields) -> Fields:
    limit = request.get("MaxNumberOfMessages", 1)
    if not 1 <= limit <= limits.BATCH_ENTRIES:
        raise invalid("MaxNumberOfMessages", "Must be between 1 and 10.")
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

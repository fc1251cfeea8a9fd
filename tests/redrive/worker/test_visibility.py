"""The backoff of many messages in few calls."""

from datetime import timedelta

from redrive.testing import InMemoryQueue, InMemorySqs, ManualClock, aws_error
from redrive.worker.visibility import change_visibility


def received(count: int):
    queue = InMemoryQueue("work", clock=ManualClock(), visibility_timeout=timedelta(minutes=6))
    sqs = InMemorySqs(queue)
    for number in range(count):
        queue.send({"MessageBody": str(number)})
    return sqs, queue, [message["ReceiptHandle"] for message in queue.receive(count)]


def test_no_messages_are_no_call():
    sqs, queue, _ = received(1)
    assert change_visibility(sqs, queue.url, []) == {}
    assert sqs.calls == []


def test_a_passing_refusal_is_asked_again_for_that_entry_alone():
    sqs, queue, handles = received(12)
    busy = aws_error("InternalError", status=500)
    sqs.fail_next("change_message_visibility_batch", busy, entries=[3])
    assert change_visibility(sqs, queue.url, [(handle, 5) for handle in handles]) == {}
    assert [len(request["Entries"]) for _, request in sqs.calls] == [10, 1, 2]


def test_a_refusal_by_our_own_fault_is_told_and_not_repeated():
    sqs, queue, handles = received(2)
    delays = [("no such receipt", 5), (handles[0], 5)]
    refused = change_visibility(sqs, queue.url, delays)
    assert refused == {"no such receipt": "ReceiptHandleIsInvalid"}
    assert len(sqs.calls) == 1

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
    assert change_visibility(sqs, queue.url, []).codes == []
    assert sqs.calls == []


def test_a_passing_refusal_is_asked_again_for_that_entry_alone():
    sqs, queue, handles = received(12)
    busy = aws_error("InternalError", status=500)
    sqs.fail_next("change_message_visibility_batch", busy, entries=[3])
    assert change_visibility(sqs, queue.url, [(handle, 5) for handle in handles]).codes == []
    assert [len(request["Entries"]) for _, request in sqs.calls] == [10, 1, 2]


def test_a_refusal_that_does_not_pass_is_told_and_the_message_is_still_ours():
    sqs, queue, handles = received(2)
    busy = aws_error("InternalError", status=500)
    sqs.fail_next("change_message_visibility_batch", busy, entries=[0], times=9)
    refused = change_visibility(sqs, queue.url, [(handle, 5) for handle in handles])
    assert refused.missed == {handles[0]: "InternalError"}
    assert refused.lost == {}


def test_a_refusal_by_our_own_fault_is_told_and_not_repeated():
    sqs, queue, handles = received(2)
    refused = change_visibility(sqs, queue.url, [("no such receipt", 5), (handles[0], 5)])
    assert refused.lost == {"no such receipt": "ReceiptHandleIsInvalid"}
    assert len(sqs.calls) == 1


def test_a_lost_message_is_not_forgotten_over_one_that_is_asked_again():
    sqs, queue, handles = received(3)
    queue.delete(handles[2])
    busy = aws_error("InternalError", status=500)
    sqs.fail_next("change_message_visibility_batch", busy, entries=[0])
    refused = change_visibility(sqs, queue.url, [(handle, 5) for handle in handles])
    assert list(refused.lost) == [handles[2]]
    assert refused.missed == {}


def test_a_call_that_fails_does_not_keep_the_next_ten_from_theirs():
    sqs, queue, handles = received(23)
    sqs.fail_next("change_message_visibility_batch", "AccessDenied")
    refused = change_visibility(sqs, queue.url, [(handle, 5) for handle in handles])
    assert [len(request["Entries"]) for _, request in sqs.calls] == [10, 10, 3]
    assert refused.missed == dict.fromkeys(handles[:10], "AccessDenied")

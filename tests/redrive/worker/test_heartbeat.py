"""The lease of a batch. Real time, in leases of tenths of a second; every wait is for an event."""

import threading
import time
from datetime import timedelta

import pytest

from redrive.message import Message
from redrive.testing import InMemoryQueue, InMemorySqs, aws_error, lambda_context, lambda_event
from redrive.worker.heartbeat import Heartbeat

LEASE = 0.6


class Watched(InMemorySqs):
    """Tells when the heartbeat has called."""

    def __init__(self, *queues):
        super().__init__(*queues)
        self.called = threading.Condition()

    def change_message_visibility_batch(self, **request):
        try:
            return super().change_message_visibility_batch(**request)
        finally:
            with self.called:
                self.called.notify_all()

    def timeouts(self):
        """The visibility timeouts of each call, by receipt handle."""
        return [
            {entry["ReceiptHandle"]: entry["VisibilityTimeout"] for entry in request["Entries"]}
            for _, request in self.calls
        ]

    def await_calls(self, count):
        with self.called:
            assert self.called.wait_for(lambda: len(self.calls) >= count, timeout=20)


class Claim:
    """A run whose claim is renewed."""

    def __init__(self, error=None):
        self.renewed, self.error = threading.Event(), error
        self.until = []

    def renew(self, until):
        self.until.append(until)
        self.renewed.set()
        if self.error:
            raise self.error


@pytest.fixture
def held():
    """Three received messages, and the SQS that has them."""
    queue = InMemoryQueue("work", visibility_timeout=timedelta(minutes=6))
    sqs = Watched(queue)
    for number in range(3):
        queue.send({"MessageBody": str(number)})
    event = lambda_event(queue.receive(10), queue)
    return sqs, queue, [Message.from_record(record) for record in event["Records"]]


def heartbeat(held, lease=LEASE, remaining=timedelta(minutes=1), troubles=None):
    sqs, queue, messages = held
    troubles = [] if troubles is None else troubles
    return Heartbeat(
        sqs,
        queue.url,
        messages,
        lambda_context(remaining=remaining),
        lease_seconds=lease,
        on_trouble=lambda *trouble: troubles.append(trouble),
    )


def test_the_lease_begins_before_the_first_job_in_one_call_for_all(held):
    sqs, _, messages = held
    with heartbeat(held, lease=60):
        sqs.await_calls(1)
        assert sqs.timeouts() == [{message.receipt_handle: 60 for message in messages}]


def test_all_messages_are_renewed_while_the_batch_runs_and_none_after_it(held):
    sqs, _, messages = held
    with heartbeat(held):
        sqs.await_calls(4)
    calls = len(sqs.calls)
    assert all(set(call) == {m.receipt_handle for m in messages} for call in sqs.timeouts())
    assert threading.active_count() == 1 or not [
        thread for thread in threading.enumerate() if thread.name == "heartbeat"
    ]
    assert len(sqs.calls) == calls


def test_a_lease_never_reaches_past_the_deadline(held):
    sqs, _, _ = held
    with heartbeat(held, lease=60, remaining=timedelta(seconds=7)):
        sqs.await_calls(1)
    (call,) = sqs.timeouts()
    assert set(call.values()) == {7}


def test_where_the_queues_timeout_is_no_longer_than_a_lease_there_is_no_call(held):
    sqs, _, _ = held
    with heartbeat(held, lease=None) as beating:
        assert beating.until > time.time() * 1000 + 50_000
    assert sqs.calls == []


def test_a_failed_messages_backoff_is_set_while_the_others_run_and_is_not_overwritten(held):
    sqs, _, messages = held
    failed, *others = messages
    with heartbeat(held) as beating:
        sqs.await_calls(1)
        beating.release([failed], 99)
        sqs.await_calls(5)
    timeouts = sqs.timeouts()
    released = next(at for at, call in enumerate(timeouts) if call == {failed.receipt_handle: 99})
    after = timeouts[released + 1 :]
    assert after
    assert all(set(call) == {other.receipt_handle for other in others} for call in after)


def test_failures_that_come_together_are_one_call(held):
    sqs, _, messages = held
    with heartbeat(held, lease=60) as beating:
        sqs.await_calls(1)
        for seconds, message in enumerate(messages):
            beating.release([message], seconds)
        sqs.await_calls(2)
    assert [len(call) for call in sqs.timeouts()] == [3, 3]


def test_without_a_lease_backoffs_are_set_at_the_end(held):
    sqs, _, messages = held
    with heartbeat(held, lease=None) as beating:
        beating.release(messages, 5)
        assert sqs.calls == []
    assert [set(call.values()) for call in sqs.timeouts()] == [{5}]


def test_a_message_that_is_another_runs_now_is_not_touched(held):
    sqs, _, messages = held
    with heartbeat(held) as beating:
        sqs.await_calls(1)
        beating.drop(messages[0])
        sqs.await_calls(3)
    assert all(messages[0].receipt_handle not in call for call in sqs.timeouts()[1:])


def test_a_lost_receipt_leaves_the_others_renewed(held):
    sqs, queue, messages = held
    troubles = []
    with heartbeat(held, troubles=troubles):
        sqs.await_calls(1)
        queue.delete(messages[0].receipt_handle)
        sqs.await_calls(4)
    assert messages[0].receipt_handle not in sqs.timeouts()[-1]
    assert len(sqs.timeouts()[-1]) == 2
    assert [what for what, _, _ in troubles] == ["lease not renewed"]


def test_a_call_that_fails_is_made_again_with_all_of_them_at_the_next_beat(held):
    sqs, _, _ = held
    troubles = []
    with heartbeat(held, troubles=troubles) as beating:
        sqs.await_calls(1)
        sqs.fail_next("change_message_visibility_batch", aws_error("AccessDenied", status=403))
        claim = Claim()
        beating.watch(claim)
        sqs.await_calls(3)
        assert claim.renewed.wait(20)
    assert len(sqs.timeouts()[2]) == 3
    assert troubles == [("lease not renewed", "AccessDenied", 3)]


def test_the_claims_of_the_runs_are_renewed_with_the_messages_and_no_longer(held):
    sqs, queue, _ = held
    with heartbeat(held) as beating:
        first = beating.until
        claim = Claim()
        beating.watch(claim)
        assert claim.renewed.wait(20)
        beating.forget(claim)
        renewed = len(claim.until)
        sqs.await_calls(len(sqs.calls) + 2)
        assert beating.until > first
    assert len(claim.until) <= renewed + 1
    visible_at = min(message.visible_at for message in queue.messages)
    assert claim.until[0] / 1000 <= visible_at + LEASE


def test_a_claim_that_cannot_be_renewed_does_not_hold_up_the_others(held):
    troubles = []
    with heartbeat(held, troubles=troubles) as beating:
        broken, sound = Claim(error=aws_error("ThrottlingException")), Claim()
        beating.watch(broken)
        beating.watch(sound)
        assert broken.renewed.wait(20)
        assert sound.renewed.wait(20)
    assert ("claim not renewed", "ThrottlingException", 1) in troubles


def test_the_thread_is_joined_also_when_the_batch_fails(held):
    with pytest.raises(ZeroDivisionError), heartbeat(held):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]

"""The scan of a queue: what it holds, for how long, and that all of it is given back."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from redrive.testing import InMemoryQueue, InMemorySqs, ManualClock
from replay.halt import Halt
from replay.scan import Scan
from tests.functions.replay.conftest import Desk

PATIENCE = 20


@pytest.fixture
def queue():
    return InMemoryQueue("dead", visibility_timeout=timedelta(seconds=1), clock=ManualClock())


def fill(queue, count):
    for number in range(count):
        queue.send({"MessageBody": json.dumps({"id": number})})
    return InMemorySqs(queue)


def scan_of(sqs, queue, halt=None, *, hold_seconds=114, most_threads=4):
    return Scan(
        sqs, queue.url, halt or Halt(PATIENCE), hold_seconds=hold_seconds, most_threads=most_threads
    )


def hidden(queue):
    return int(queue.attributes["ApproximateNumberOfMessagesNotVisible"])


def test_a_killed_scan_gives_all_back_within_two_minutes(desk: Desk):
    desk.put_dead(3)
    desk.ask(action="replay")
    asked = [
        request["VisibilityTimeout"]
        for name, request in desk.bench.sqs.calls
        if name == "receive_message"
    ]
    assert 60 < max(asked) < 120


def test_what_is_held_is_renewed_while_a_slow_handful_is_handled():
    queue = InMemoryQueue("dead", clock=time.time)
    sqs = fill(queue, 25)
    beats = threading.Semaphore(0)
    change = sqs.change_message_visibility_batch

    def counted(**request):
        answer = change(**request)
        beats.release()
        return answer

    sqs.change_message_visibility_batch = counted
    stolen = []

    def handle(handful):
        for _ in range(4 * 3):  # a beat is three calls for 25 messages
            assert beats.acquire(timeout=PATIENCE)
        stolen.extend(queue.receive(10))
        return True

    with scan_of(sqs, queue, hold_seconds=2, most_threads=1) as scan:
        scan.read(handle)
    assert stolen == []
    assert hidden(queue) == 0


def test_a_handler_that_raises_ends_all_threads_before_anything_is_given_back(queue):
    sqs = fill(queue, 400)
    handled = []
    both_run = threading.Barrier(2)

    def handle(handful):
        if len(handled) < 2:
            handled.append(len(handful))
            both_run.wait(PATIENCE)
            if threading.current_thread().name.endswith("_0"):
                raise RuntimeError("a bug")
        assert hidden(queue) > 0
        return True

    halt = Halt(PATIENCE)
    with pytest.raises(RuntimeError), scan_of(sqs, queue, halt, most_threads=2) as scan:
        scan.read(handle)
    assert halt.reason == "failed: RuntimeError"
    assert hidden(queue) == 0
    assert len(queue) == 400


@pytest.mark.parametrize("name", ["dead", "dead.fifo"])
def test_only_a_fifo_queue_may_show_more_when_others_have_handled_theirs(name):
    queue = InMemoryQueue(name, clock=ManualClock())
    sqs = InMemorySqs(queue)
    receive, polls = sqs.receive_message, threading.Semaphore(0)

    def counted(**request):
        polls.release()
        return receive(**request)

    sqs.receive_message = counted
    with scan_of(sqs, queue) as scan, ThreadPoolExecutor(1) as other, scan._busy():
        reading = other.submit(scan.read, lambda handful: True)
        for _ in range(10 if queue.fifo else 2):
            assert polls.acquire(timeout=PATIENCE)
        if queue.fifo:
            scan.enough()
        reading.result(PATIENCE)
    assert queue.fifo or not polls.acquire(blocking=False)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("x" * 1_000_000, 5),
        # Each character takes four bytes then.
        ("\U0001f600" + "x" * 1_000_000, 4),
    ],
    ids=["ascii", "emoji"],
)
@pytest.mark.parametrize("where", ["body", "attribute"])
def test_a_handful_is_no_more_than_memory_holds(queue, text, most, where):
    message = {"MessageBody": text}
    if where == "attribute":
        message = {
            "MessageBody": "{}",
            "MessageAttributes": {"text": {"DataType": "String", "StringValue": text}},
        }
    for _ in range(30):
        queue.send(message)
    sqs, sizes = InMemorySqs(queue), []
    with scan_of(sqs, queue, most_threads=1) as scan:
        scan.read(lambda handful: sizes.append(len(handful)) or True)
    assert sum(sizes) == 30
    assert max(sizes) <= most
    assert max(asked_for(sqs)) <= most


def test_of_small_messages_ten_are_asked_for_as_soon_as_they_are_known_to_be_small(queue):
    sqs, sizes = fill(queue, 99), []
    with scan_of(sqs, queue, most_threads=1) as scan:
        scan.read(lambda handful: sizes.append(len(handful)) or True)
    assert sizes == [50, 49]
    assert asked_for(sqs)[:6] == [4, 7, 10, 10, 10, 9]


def test_of_a_fifo_queue_ten_are_asked_for_at_once_by_fewer_threads():
    queue = InMemoryQueue("dead.fifo", clock=ManualClock())
    for number in range(900):
        id_ = str(number)
        queue.send({"MessageBody": id_, "MessageGroupId": id_, "MessageDeduplicationId": id_})
    sqs = InMemorySqs(queue)
    with scan_of(sqs, queue, most_threads=32) as scan:
        assert scan._threads == 8
        scan.read(len)
    assert set(asked_for(sqs)) == {10}
    assert hidden(queue) == 0


def asked_for(sqs):
    return [
        request["MaxNumberOfMessages"] for name, request in sqs.calls if name == "receive_message"
    ]


def test_a_short_queue_takes_one_thread_and_a_long_one_more(queue):
    names = set()

    def handle(handful):
        names.add(threading.current_thread().name)
        return True

    sqs = fill(queue, 99)
    with scan_of(sqs, queue) as scan:
        scan.read(handle)
    assert len(names) == 1
    assert scan._threads == 1
    fill(queue, 900)
    with scan_of(sqs, queue) as scan:
        assert scan._threads == 4


def test_giving_back_takes_no_longer_than_an_answer_can_wait(queue, monkeypatch):
    monkeypatch.setattr("replay.scan._RELEASE_SECONDS", -1)
    sqs = fill(queue, 30)
    with scan_of(sqs, queue) as scan:
        scan.read(lambda handful: True)
    assert hidden(queue) == 30  # they come back by themselves
    assert "30 messages" in scan.not_given_back
    assert "change_message_visibility_batch" not in [name for name, _ in sqs.calls]

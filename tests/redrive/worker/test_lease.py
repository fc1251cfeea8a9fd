"""The lease of a batch, through the worker: what is renewed, what is lost, and what that costs."""

import threading
import time
from datetime import timedelta

from redrive.testing import InMemoryQueue, InMemorySqs

LEASE = 0.6


def real_time(bench, *, visibility=timedelta(minutes=6)):
    """The bench with a queue whose time passes, and an SQS that counts its calls."""
    bench.queue = InMemoryQueue("work", visibility_timeout=visibility, clock=time.time)
    bench.sqs = Counting(bench.queue, bench.dead)
    bench.clock = time.time
    return bench


class Counting(InMemorySqs):
    def __init__(self, *queues):
        super().__init__(*queues)
        self.beats, self.beaten = 0, threading.Condition()

    def change_message_visibility_batch(self, **request):
        answer = super().change_message_visibility_batch(**request)
        with self.beaten:
            self.beats += 1
            self.beaten.notify_all()
        return answer

    def await_beats(self, more):
        with self.beaten:
            target = self.beats + more
            assert self.beaten.wait_for(lambda: self.beats >= target, timeout=20)


def test_messages_that_wait_behind_a_long_one_in_their_batch_are_held_too(bench):
    bench = real_time(bench)
    stolen = []

    def run(job):
        bench.sqs.await_beats(3)  # a whole lease
        stolen.extend(bench.queue.receive(10))

    for id_ in "abc":
        bench.send({"id": id_})
    worker = bench.worker(run, batch_concurrency=1, lease_seconds=LEASE)
    assert len(bench.deliver(worker).deleted) == 3
    assert bench.ids_run() == ["a", "b", "c"]
    assert stolen == []


def test_a_lost_receipt_is_its_own_messages_affair(bench, lines):
    bench = real_time(bench)
    for number in range(10):
        bench.send({"id": number})
    bench.sqs.fail_next("change_message_visibility_batch", "ReceiptHandleIsInvalid", entries=[0])
    worker = bench.worker(
        lambda job: bench.sqs.await_beats(1), batch_concurrency=10, lease_seconds=LEASE
    )
    assert len(bench.deliver(worker).deleted) == 10
    assert len(bench.runs) == 10
    (told,) = [line for line in lines() if line.get("message") == "lease not renewed"]
    assert (told["error"], told["messages"], told["level"]) == (
        "ReceiptHandleIsInvalid",
        1,
        "ERROR",
    )
    held = [len(request["Entries"]) for name, request in bench.sqs.calls if "visibility" in name]
    assert held[0] == 10
    assert set(held[1:]) == {9}


def test_the_last_of_many_renewals_is_as_short_as_the_first(bench):
    bench = real_time(bench)
    bench.send({"id": "a"})
    worker = bench.worker(lambda job: bench.sqs.await_beats(8), lease_seconds=LEASE)
    bench.deliver(worker)
    assert set(bench.delays()) == {1}  # 0.6 s, in whole seconds


def test_a_delete_that_fifo_refuses_leaves_a_duplicate_that_is_not_run(fifo_bench):
    fifo_bench.send({"id": "a"}, MessageGroupId="G", MessageDeduplicationId="1")
    # As SQS answers for a receipt whose visibility has ended: nothing is deleted.
    fifo_bench.queue.delete = lambda handle: None
    worker = fifo_bench.worker()
    fifo_bench.deliver(worker)
    assert len(fifo_bench.queue) == 1
    del fifo_bench.queue.delete
    fifo_bench.clock.advance(timedelta(minutes=6))
    assert len(fifo_bench.deliver(worker).deleted) == 1
    assert fifo_bench.ids_run() == ["a"]


def test_a_worker_that_may_not_hide_its_messages_says_so_each_time_and_runs_the_job_once(
    bench, lines
):
    bench.send({"id": "a"})
    bench.queue.delete = lambda handle: None
    for _ in range(4):
        bench.sqs.fail_next("change_message_visibility_batch", "AccessDenied")
        bench.deliver(bench.worker(lease_seconds=60))
        bench.clock.advance(timedelta(minutes=6))
        printed = lines()
        (told,) = [line for line in printed if line.get("message") == "lease not renewed"]
        assert (told["error"], told["service"], told["level"]) == ("AccessDenied", "work", "ERROR")
        assert [1.0] in [line.get("VisibilityRefused") for line in printed]
    assert bench.ids_run() == ["a"]


def test_a_call_that_hangs_is_given_up_before_it_costs_the_lease(bench, monkeypatch):
    from redrive.worker import Worker

    read_timeouts = {}

    def client(service, *, config):
        read_timeouts[service] = config.read_timeout
        return {"sqs": bench.sqs, "dynamodb": bench.dynamodb}[service]

    monkeypatch.setattr("redrive.worker.worker.boto3.client", client)
    for lease, patience in ((6, 2), (60, 10)):
        settings = bench.worker(lease_seconds=lease)._settings
        bench.send({"id": lease})
        bench.deliver(Worker(lambda job: None, settings=settings))
        assert read_timeouts == {"sqs": patience, "dynamodb": patience}


# --- receives, rows and keys ----------------------------------------------------------------------


def test_receives_without_a_run_cost_no_job_anything(bench):
    """Pollers that read faster than a concurrency limit lets run: each receive is thrown away."""
    for number in range(50):
        bench.send({"id": number})
    worker = bench.worker()
    for turn in range(5):
        for _ in range(20):
            bench.queue.receive(50 - 10 * turn)
            bench.clock.advance(timedelta(minutes=6))
        bench.deliver(worker)
    assert sorted(map(int, bench.ids_run())) == list(range(50))
    assert {job.attempt for job in bench.runs} == {1}
    assert len(bench.queue) == len(bench.dead) == 0


def test_a_job_that_was_never_run_says_so_when_it_dies(bench):
    bench.send({"id": "a"})
    bench.queue.messages[0].receives = 479
    worker = bench.worker(p99_seconds=100)  # there is never enough time for it
    bench.deliver(worker)
    cause = bench.causes()['{"id": "a"}']
    assert (cause["type"], cause["attempts"], cause["receives"]) == ("ReceivedTooOften", 0, 480)


def test_no_partition_key_gets_more_than_a_few_writes(bench, dynamodb, monkeypatch):
    """A partition takes a thousand writes a second: a key that all jobs share would be the end."""
    keys = []

    def counted(name, key_of):
        call = getattr(dynamodb, name)
        monkeypatch.setattr(
            dynamodb, name, lambda **request: keys.extend(key_of(request)) or call(**request)
        )

    counted("put_item", lambda request: [request["Item"]["id"]["S"]])
    counted("update_item", lambda request: [request["Key"]["id"]["S"]])
    counted("delete_item", lambda request: [request["Key"]["id"]["S"]])
    bench.group_commit = False  # the same writes, one by one
    worker = bench.worker(lambda job: 1 / (int(job.key) % 10))
    for number in range(200):
        bench.send({"id": number})
    for _ in range(20):
        bench.deliver(worker)
    assert len(bench.runs) == 200
    assert max(keys.count(key) for key in set(keys)) <= 3

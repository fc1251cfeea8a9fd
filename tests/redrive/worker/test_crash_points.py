"""A worker that is killed before each of its calls in turn; afterwards others get what it left.

Whatever the point, a job is done once, or dead once with its true cause. Two windows are known: a
job that was killed after its effect and before its result was saved runs again, and a message that
was killed after its dead letter was sent and before that was noted has two of them, told apart by
nothing (a replay takes them for one).
"""

from collections import Counter
from datetime import timedelta

import pytest

from redrive import PermanentError
from redrive.message import Envelope

SUCCEEDS = "succeeds"
DIES_AT_ONCE = "dies at once"
DIES_OF_ATTEMPTS = "dies of its attempts"
SUCCEEDS_AT_LAST = "succeeds at last"


class Doing:
    """What the jobs did: their effects, and how often they failed."""

    def __init__(self, bench):
        self.bench, self.effects, self.failures = bench, Counter(), Counter()

    def __call__(self, job):
        what = job.payload["what"]
        if what == DIES_AT_ONCE:
            raise PermanentError("for good")
        if what == DIES_OF_ATTEMPTS or (what == SUCCEEDS_AT_LAST and job.attempt < 2):
            self.failures[job.key] += 1
            raise RuntimeError("for now")
        self.effects[job.key] += 1
        return {"done": True}


def settle(bench, doing, calls_until_death):
    """One delivery by a worker that dies after so many calls, then others until nothing is left.

    Returns the name of the call that was never made, or None where the worker lived.
    """
    worker = bench.worker(doing)
    bench.life.calls_left = calls_until_death
    bench.deliver_mortal(worker)
    died_before = bench.life.died_before
    bench.pass_time(timedelta(hours=1))
    bench.deliver_until_settled(bench.worker(doing))
    return died_before


@pytest.fixture(params=[SUCCEEDS, DIES_AT_ONCE, DIES_OF_ATTEMPTS, SUCCEEDS_AT_LAST])
def what(request):
    return request.param


@pytest.mark.parametrize("calls_until_death", range(6))
def test_one_message_and_a_death_before_each_call(bench, what, calls_until_death):
    doing = Doing(bench)
    bench.send({"id": "a", "what": what})
    died_before = settle(bench, doing, calls_until_death)

    in_the_window = what == SUCCEEDS and died_before == "update_item"
    effects = 0 if what in (DIES_AT_ONCE, DIES_OF_ATTEMPTS) else 1
    assert doing.effects["a"] == effects + in_the_window

    letters = bench.dead_letters()
    twice = what == DIES_AT_ONCE and died_before == "update_item"  # the dead mark
    expected = 0 if effects else 1 + twice
    assert len(letters) == expected
    envelopes = [
        Envelope.parse(letter["MessageAttributes"]["redrive"]["StringValue"]) for letter in letters
    ]
    assert len({(one.id, one.message_id, one.replays) for one in envelopes}) == min(expected, 1)
    causes = {one.cause.type for one in envelopes}
    assert causes <= {"PermanentError" if what == DIES_AT_ONCE else "RuntimeError"}
    if what == DIES_OF_ATTEMPTS:
        # A death between a failure and its count leaves one attempt uncounted, and no more.
        assert 3 <= doing.failures["a"] <= 4


@pytest.mark.parametrize("calls_until_death", range(9))
def test_a_duplicate_beside_it_changes_nothing(bench, calls_until_death):
    doing = Doing(bench)
    for _ in range(2):
        bench.send({"id": "a", "what": SUCCEEDS})
    died_before = settle(bench, doing, calls_until_death)
    assert doing.effects["a"] == 1 + (died_before == "update_item")
    assert len(bench.dead) == 0


def test_a_death_after_the_last_call_runs_nothing_again(bench):
    doing = Doing(bench)
    bench.send({"id": "a", "what": SUCCEEDS})
    (message,) = bench.queue.messages
    bench.deliver(bench.worker(doing))
    bench.queue.messages.append(message)  # killed before its answer reached the poller
    bench.pass_time(timedelta(hours=1))
    bench.deliver_until_settled(bench.worker(doing))
    assert doing.effects["a"] == 1
    assert len(bench.dead) == 0


@pytest.mark.parametrize("calls_until_death", range(7))
def test_the_order_of_a_fifo_group_survives(fifo_bench, calls_until_death):
    order = []
    for id_ in ("1", "2", "3"):
        fifo_bench.send({"id": id_}, MessageGroupId="G", MessageDeduplicationId=id_)
    settle(fifo_bench, lambda job: order.append(job.key), calls_until_death)
    first_seen = list(dict.fromkeys(order))
    assert first_seen == ["1", "2", "3"]
    assert len(order) <= 4  # one more, where the death fell into the window
    assert len(fifo_bench.dead) == 0

"""Runs that are killed, frozen, or take long, on the deployed stack. The one place that judges
times.
"""

import json
import os
import signal
from datetime import datetime
from uuid import uuid4

import pytest

from tests.e2e.stack import cause_of, eventually
from tests.soak.conftest import LEASE_SECONDS

FUNCTION_TIMEOUT_SECONDS = 900


class LongJob:
    """A job of the deployed `long`, followed by the rows that it leaves."""

    def __init__(self, stack, **payload):
        self.stack, self.id = stack, str(uuid4())
        self.body = json.dumps({"id": self.id, **payload})
        stack.send("long", self.body)

    def moments(self, what):
        rows = self.stack.rows(f"long:{self.id}", what)
        return [float(moment["N"]) for moment in rows[0]["moments"]["L"]] if rows else []

    def pids(self):
        (row,) = self.stack.rows(f"long:{self.id}", "start")
        return [int(pid["N"]) for pid in row["pids"]["L"]]

    def await_start(self, number=1):
        eventually(
            lambda: len(self.moments("start")) >= number, what=f"start {number} of {self.body}"
        )
        return self

    def await_effect(self):
        eventually(lambda: self.moments("effect"), what=f"the effect of {self.body}")
        return self


@pytest.fixture(scope="module")
def visibility_timeout(stack):
    """What AWS says: a killed run's messages would be away for so long without a lease."""
    attributes = stack.client("sqs").get_queue_attributes(
        QueueUrl=stack.queue_url("long"), AttributeNames=["VisibilityTimeout"]
    )["Attributes"]
    return int(attributes["VisibilityTimeout"])


def test_a_killed_job_is_back_within_its_lease_and_not_in_six_times_the_timeout(
    stack, visibility_timeout
):
    assert visibility_timeout == 6 * FUNCTION_TIMEOUT_SECONDS
    jobs = {
        after: LongJob(stack, dying_runs=1, dies_after_seconds=after).await_start()
        for after in (1, 5, 10)
    }
    print(f"\nback after a kill, with a lease of {LEASE_SECONDS} s:")
    for after, job in jobs.items():
        job.await_effect()
        first, second = job.moments("start")
        back = second - (first + after)
        print(
            f"  killed {after:>2} s into the job: {back:.1f} s; without a lease "
            f"{visibility_timeout} s (6 x the timeout), with a fixed one of peers 900 s"
        )
        assert back <= LEASE_SECONDS + 10
        assert len(job.moments("effect")) == 1


def test_one_poison_pill_in_a_batch_of_ten_kills_itself_alone(stack):
    # A first job occupies no environment: these ten come as one batch, or as few.
    run_id = str(uuid4())
    payloads = [{"id": f"{run_id}-{number}", "seconds": 0.5} for number in range(9)]
    bad = {"id": f"{run_id}-bad", "dying_runs": 99, "dies_after_seconds": 0.2}
    stack.publisher.publish_many("long", [*payloads, bad])
    dead = stack.await_dead_letter("long", json.dumps(bad, separators=(",", ":")))
    cause = cause_of(dead)
    assert cause["type"] == "Killed"
    assert cause["attempts"] == 0
    for payload in payloads:
        (row,) = eventually(
            lambda payload=payload: stack.rows(f"long:{payload['id']}", "effect"),
            what=f"{payload} is done",
        )
        assert row["times"] == {"N": "1"}
    (row,) = stack.rows(f"long:{bad['id']}", "start")
    assert row["times"] == {"N": "3"}
    first_start = float(row["moments"]["L"][0]["N"])
    took = datetime.fromisoformat(cause["failed_at"]).timestamp() - first_start
    print(f"\npoison pill dead after {took:.1f} s, {took / LEASE_SECONDS:.1f} leases")
    assert took <= 4 * LEASE_SECONDS


def test_a_run_that_comes_back_from_a_freeze_undoes_nothing(stack):
    job = LongJob(stack, frozen_runs=1).await_start()
    job.await_start(2)
    job.await_effect()
    stack.await_empty("long")
    os.kill(job.pids()[0], signal.SIGCONT)
    eventually(
        lambda: any("LeaseLost" in line for line in stack.log_lines("long", job.id)),
        what="the frozen run finds its lease lost",
    )
    stack.await_empty("long")
    assert len(job.moments("start")) == 2
    outcomes = [
        json.loads(line)["outcome"]
        for line in stack.log_lines("long", job.id)
        if '"outcome"' in line
    ]
    assert sorted(outcomes) == ["LeaseLost", "Succeeded"]
    assert any('"LeaseLost":[1.0]' in line for line in stack.log_lines("long", "LeaseLost"))


def test_a_job_longer_than_three_leases_is_delivered_once(stack):
    job = LongJob(stack, seconds=3.5 * LEASE_SECONDS).await_start()
    job.await_effect()
    stack.await_empty("long")
    assert len(job.moments("start")) == 1
    (line,) = [line for line in stack.log_lines("long", job.id) if '"outcome"' in line]
    assert json.loads(line)["receives"] == 1

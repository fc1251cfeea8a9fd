"""A job whose publisher does not want it done late."""

import json
from datetime import timedelta

import pytest

from redrive.message import Envelope, iso_time
from tests.redrive.worker.test_refusals import fail

MINUTE = timedelta(minutes=1)


def send(bench, *, force=0, in_=MINUTE):
    expires_at = iso_time((bench.clock() + in_.total_seconds()) * 1000)
    text = Envelope(expires_at=expires_at, force=force).render()
    bench.send(
        {"id": "a"},
        MessageAttributes={"redrive": {"DataType": "String", "StringValue": text}},
    )
    return expires_at


def test_an_expired_job_is_dead_lettered_unrun_and_says_so(bench, lines):
    expires_at = send(bench)
    bench.clock.advance(MINUTE)
    bench.deliver(bench.worker())
    assert bench.runs == []
    (letter,) = bench.dead_letters()
    envelope = json.loads(letter["MessageAttributes"]["redrive"]["StringValue"])
    assert envelope["expires_at"] == expires_at
    cause = envelope["cause"]
    assert (cause["type"], cause["attempts"]) == ("Expired", 0)
    assert expires_at in cause["message"]
    assert bench.rows("idempotency") == []  # a later message of the job is not kept out
    metrics = [line for line in lines() if "_aws" in line]
    assert not [line for line in metrics if "Duration" in line]
    assert [line["DeadLettered"] for line in metrics if line.get("reason") == "Expired"] == [[1.0]]


def test_until_then_it_is_run(bench):
    send(bench)
    bench.clock.advance(MINUTE - timedelta(milliseconds=1))
    assert len(bench.deliver(bench.worker()).deleted) == 1
    assert bench.ids_run() == ["a"]


def test_a_job_that_expires_between_two_attempts_keeps_the_count_of_those_that_failed(bench):
    send(bench)
    bench.deliver(bench.worker(fail))
    bench.clock.advance(MINUTE)
    bench.deliver(bench.worker())
    cause = bench.causes()['{"id": "a"}']
    assert (cause["type"], cause["attempts"]) == ("Expired", 1)
    assert "failed by RuntimeError" in cause["message"]
    assert len(bench.runs) == 1


def test_a_job_that_was_done_in_time_is_not_dead_because_its_delete_was_lost(bench):
    send(bench)
    bench.queue.receive()
    send(bench)
    bench.deliver(bench.worker())
    bench.clock.advance(timedelta(minutes=6))
    bench.deliver(bench.worker())
    assert len(bench.runs) == 1
    assert len(bench.queue) == len(bench.dead) == 0


def test_an_operator_who_forces_a_replay_wants_it_run_however_late(bench):
    send(bench, force=1)
    bench.clock.advance(MINUTE)
    bench.deliver(bench.worker())
    assert len(bench.runs) == 1


@pytest.mark.parametrize("expires_at", ["yesterday", "2020-01-01T00:00:00", 1577836800, None])
def test_an_expiry_that_cannot_be_read_expires_nothing(bench, expires_at):
    text = json.dumps({"v": 1, "expires_at": expires_at})
    bench.send(
        {"id": "a"},
        MessageAttributes={"redrive": {"DataType": "String", "StringValue": text}},
    )
    bench.deliver(bench.worker())
    assert len(bench.runs) == 1

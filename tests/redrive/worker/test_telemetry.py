"""What a worker says of itself: which job, never what was in it."""

import json
import math

import pytest
from botocore.exceptions import ClientError

from redrive import PermanentError
from redrive.worker.telemetry import Telemetry

SECRET = "123-45-6789"


def metrics(lines, name):
    """Each datapoint of a metric: its dimensions, and its values."""
    found = []
    for line in lines:
        if name in line and "_aws" in line:
            (dimensions,) = line["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
            found.append(({key: line[key] for key in dimensions}, line[name]))
    return found


def test_a_cold_start_emits_a_zero_of_dead_letters_to_grow_from(bench, lines):
    bench.send({"id": "a"})
    worker = bench.worker()
    bench.deliver(worker)
    dimensions = {"stage": "test", "job": "work"}
    assert metrics(lines(), "DeadLettered") == [(dimensions, [0.0])]
    bench.send({"id": "b"})
    bench.deliver(worker)
    assert metrics(lines(), "DeadLettered") == []


def test_every_fate_is_counted_for_its_job_and_dead_letters_by_reason_too(bench, lines):
    def run(job):
        if job.key == "dead":
            raise PermanentError
        if job.key == "failed":
            raise RuntimeError

    for id_ in ("done", "done", "dead", "failed", None):
        bench.send({"id": id_})
    bench.deliver(bench.worker(run))
    printed = lines()
    job = {"stage": "test", "job": "work"}
    assert metrics(printed, "Succeeded") == [(job, [1.0])]
    assert metrics(printed, "Duplicate") == [(job, [1.0])]
    assert metrics(printed, "Failed") == [(job, [3.0])]
    assert sorted(metrics(printed, "DeadLettered"), key=str) == sorted(
        [
            (job, [0.0]),
            (job, [2.0]),
            (job | {"reason": "PermanentError"}, [1.0]),
            (job | {"reason": "UnusablePayload"}, [1.0]),
        ],
        key=str,
    )


def test_duration_and_queue_wait_are_measured_a_job_a_value(bench, lines):
    for number in range(3):
        bench.send({"id": number})
    bench.deliver(bench.worker())
    printed = lines()
    ((_, durations),) = metrics(printed, "Duration")
    ((_, waits),) = metrics(printed, "QueueWait")
    assert len(durations) == len(waits) == 3
    assert all(value >= 0 for value in durations + waits)


def test_a_line_says_how_long_its_job_ran_if_it_ran(bench, lines):
    for id_ in ("a", "a", "b"):
        bench.send({"id": id_})
    bench.deliver(bench.worker(lambda job: 1 / 0 if job.key == "b" else None))
    printed = lines()
    ((_, durations),) = metrics(printed, "Duration")
    told = {line["outcome"]: line.get("duration_ms") for line in printed if "outcome" in line}
    assert told.pop("Duplicate") is None
    assert sorted(told) == ["Failed", "Succeeded"]
    assert sorted(told.values()) == sorted(round(value, 1) for value in durations)


def test_a_wait_for_a_retry_is_no_wait_in_the_queue(bench, lines):
    bench.send({"id": "a"})
    worker = bench.worker(lambda job: 1 / 0 if job.attempt == 1 else None)
    bench.deliver_until_settled(worker)
    assert len(metrics(lines(), "QueueWait")) == 1


def test_more_values_than_one_line_takes_are_all_emitted(bench, lines):
    for number in range(150):
        bench.send({"id": number})
    bench.deliver(bench.worker(), batch_size=150)
    assert sum(len(values) for _, values in metrics(lines(), "Duration")) == 150


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_left_out_and_the_line_stays_valid(lines, value):
    Telemetry(stage="test", job="work")._emit({}, {"Duration": [value, 1.0]})
    assert metrics(lines(), "Duration") == [({"stage": "test", "job": "work"}, [1.0])]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("ThrottlingException", "ThrottlingException"),
        (None, "ClientError"),
        ("", "ClientError"),
        (" ", "ClientError"),
        (404, "404"),
        ("a\nb", "a?b"),
        ("Störung", "St?rung"),
        ("x" * 2000, "x" * 1024),
    ],
)
def test_a_reason_is_what_cloudwatch_takes_for_a_dimension(bench, lines, code, reason):
    def run(job):
        raise ClientError({"Error": {"Code": code}}, "Send")

    bench.send({"id": "a"})
    bench.deliver_until_settled(bench.worker(run))
    assert len(bench.dead) == 1
    job = {"stage": "test", "job": "work"}
    dead = metrics(lines(), "DeadLettered")
    assert dead == [(job, [0.0]), (job, [1.0]), (job | {"reason": reason}, [1.0])]


def test_metrics_are_flushed_also_when_the_batch_fails(bench, lines, monkeypatch):
    def broken(*arguments):
        raise MemoryError

    monkeypatch.setattr("redrive.worker.heartbeat.Heartbeat._set_backoffs", broken)
    bench.send({"id": "a"})
    assert isinstance(bench.deliver(bench.worker()).error, MemoryError)
    assert [values for _, values in metrics(lines(), "Succeeded")] == [[1.0]]


@pytest.mark.parametrize("by", [ValueError, PermanentError])
def test_no_line_holds_the_payload_not_even_where_the_error_quotes_it(bench, capsys, by):
    def run(job):
        raise by(f"cannot take {job.payload}")

    bench.send({"id": "a", "ssn": SECRET})
    bench.send(f'{{"id": {{"ssn": "{SECRET}"}}}}')
    bench.send(f"not json {SECRET}")
    bench.deliver_until_settled(bench.worker(run))
    printed = "".join(capsys.readouterr())
    assert SECRET not in printed
    assert '"job_id":"work:a"' in printed


def test_a_line_names_the_job_the_message_the_attempt_and_what_happened(bench, lines):
    message_id = bench.send({"id": "a"})
    bench.deliver(bench.worker(lambda job: 1 / 0))
    (line,) = [line for line in lines() if line.get("message") == "job failed"]
    assert line["level"] == "WARNING"
    assert line["service"] == "work"
    assert line["job_id"] == "work:a"
    assert line["message_id"] == message_id
    assert (line["attempt"], line["receives"]) == (1, 1)
    assert (line["outcome"], line["error"]) == ("Failed", "ZeroDivisionError")
    assert line["at"].startswith("test_telemetry.py:")
    assert line["function_request_id"]
    assert line["visible_again_in_seconds"] >= 1
    assert json.dumps(line)

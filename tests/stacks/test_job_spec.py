"""What follows from a spec."""

import random
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stacks.job_rules import SOURCE_RETENTION, JobSpecError
from stacks.job_spec import JobSpec


def spec(**fields: Any) -> JobSpec:
    return JobSpec("send_email", **{"key": "email_id", **fields})


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def test_a_job_with_a_key_alone_has_every_default() -> None:
    assert spec() == JobSpec(
        "send_email",
        key="email_id",
        timeout=seconds(60),
        p99=seconds(5),
        lease=seconds(60),
        batch_size=10,
        batching_window=seconds(0),
        max_attempts=12,
        max_kills=3,
        max_replays=3,
        backoff_base=seconds(10),
        backoff_cap=timedelta(minutes=15),
        max_concurrency=10,
        batch_concurrency=10,
        memory_mib=512,
        fifo=False,
        growth_threshold_per_minute=10,
        publishers=(),
        permissions=(),
        environment={},
    )


def test_a_spec_cannot_be_changed_nor_can_its_environment() -> None:
    variables = {"SENDER": "a@example.com"}
    job = spec(environment=variables)
    variables["SENDER"] = "b@example.com"

    assert job.environment == {"SENDER": "a@example.com"}
    with pytest.raises(TypeError):
        job.environment["SENDER"] = "c@example.com"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        job.timeout = seconds(5)  # type: ignore[misc]
    assert {job: "hashable"}[job] == "hashable"
    assert replace(job, memory_mib=1024).environment == job.environment


@pytest.mark.parametrize(
    ("name", "pascal"),
    [("send_email", "SendEmail"), ("probe", "Probe"), ("sync_v2_users", "SyncV2Users")],
)
def test_the_name_in_pascal_case_is_the_construct_id(name: str, pascal: str) -> None:
    assert JobSpec(name, key="id").pascal_name == pascal


@pytest.mark.parametrize(
    ("timeout", "window", "visibility"),
    [(60, 0, 360), (60, 5, 365), (900, 0, 5400), (900, 300, 5700)],
)
def test_visibility_is_six_timeouts_and_the_window(
    timeout: int, window: int, visibility: int
) -> None:
    job = spec(timeout=seconds(timeout), batching_window=seconds(window))
    assert job.visibility_timeout == seconds(visibility)


@pytest.mark.parametrize(("timeout", "receives"), [(10, 1000), (60, 480), (900, 32)])
def test_the_backstop_moves_a_message_before_the_retention_deletes_it(
    timeout: int, receives: int
) -> None:
    assert spec(timeout=seconds(timeout)).max_receive_count == receives


def test_the_default_retries_survive_forty_minutes_on_average() -> None:
    # Upper ends: 10 20 40 80 160 320 640, and 900 four times.
    assert spec().retry_window_max == seconds(1270 + 4 * 900)
    assert spec().retry_window_mean == seconds(2435)


def test_one_attempt_has_no_wait() -> None:
    assert spec(max_attempts=1).retry_window_max == seconds(0)


@given(
    attempts=st.integers(1, 40),
    base=st.floats(0.001, 600),
    cap=st.floats(0.001, 900),
    seed=st.integers(),
)
def test_the_window_is_what_full_jitter_adds_up_to(
    attempts: int, base: float, cap: float, seed: int
) -> None:
    assume(base <= cap)
    job = spec(max_attempts=attempts, backoff_base=seconds(base), backoff_cap=seconds(cap))
    base, cap = job.backoff_base.total_seconds(), job.backoff_cap.total_seconds()
    ends = [min(cap, base * 2**n) for n in range(attempts - 1)]
    rng = random.Random(seed)

    assert job.retry_window_max.total_seconds() == pytest.approx(sum(ends), abs=1e-3)
    drawn = seconds(sum(rng.uniform(0, end) for end in ends))
    assert drawn <= job.retry_window_max + timedelta(milliseconds=1)
    assert job.retry_window_mean == job.retry_window_max / 2


@given(
    timeout=st.integers(1, 900),
    window=st.integers(0, 300),
    p99=st.integers(1, 900),
    batch=st.integers(1, 100),
    threads=st.integers(1, 20),
    attempts=st.integers(1, 1000),
    fifo=st.booleans(),
)
def test_whatever_is_accepted_keeps_within_what_aws_allows(
    timeout: int, window: int, p99: int, batch: int, threads: int, attempts: int, fifo: bool
) -> None:
    try:
        job = spec(
            timeout=seconds(timeout),
            batching_window=seconds(window),
            p99=seconds(p99),
            batch_size=batch,
            batch_concurrency=threads,
            max_attempts=attempts,
            fifo=fifo,
        )
    except JobSpecError:
        return
    assert 6 * job.timeout <= job.visibility_timeout < timedelta(hours=12)
    assert attempts <= job.max_receive_count <= 1000
    assert job.max_receive_count * job.visibility_timeout <= SOURCE_RETENTION / 2
    assert -(-batch // threads) * p99 + 5 <= timeout
    assert batch <= 10 or (window and not fifo)

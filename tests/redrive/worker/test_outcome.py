"""The delivery contract, as far as it is decided message by message."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import ContinueLater, DeadlineExceeded, PermanentError, RetryLater
from redrive.errors import Expired, Expiring, Killed, ReceivedTooOften, UnusablePayload
from redrive.retry import RetryPolicy
from redrive.worker.outcome import (
    LONGEST_DELAY_SECONDS,
    Acknowledge,
    AlreadyDead,
    Busy,
    Contract,
    ControlMessage,
    DeadLetter,
    Duplicate,
    Facts,
    Failed,
    LeaseLost,
    Leave,
    NotStarted,
    Return,
    Succeeded,
    decide,
    put_off,
)

HOUR = 3600
CONTRACT = Contract(
    retry=RetryPolicy(max_attempts=3, backoff_base=10, backoff_cap=900),
    timeout_seconds=60,
    retention_seconds=96 * HOUR,
    max_receives=1000,
)
PERMANENT = PermanentError("no such customer")
UNUSABLE = UnusablePayload("no value at `id`")
EXPIRED = Expired("too late")
KILLED = Killed(3, "request", "stream")
TRANSIENT = TimeoutError()
LATER = RetryLater(7.2)


class Forgetful(RetryLater):
    """Says not how long: its __init__ does not call RetryLater's."""

    def __init__(self):
        pass


FORGETFUL = Forgetful()


class HighestRandom(Random):
    """Draws the top of every range, so that a test sees the range."""

    def uniform(self, a: float, b: float) -> float:
        return b


def decided(happening, attempt=1, receives=1, age_seconds=0):
    facts = Facts(attempt=attempt, receives=receives, age_seconds=age_seconds)
    return decide(happening, facts, CONTRACT, HighestRandom())


@pytest.mark.parametrize(
    ("happening", "attempt", "decision"),
    [
        (Succeeded({"sent": 1}), 1, Acknowledge()),
        (Succeeded(None), 3, Acknowledge()),
        (Duplicate(), 1, Acknowledge()),
        (AlreadyDead(), 1, Acknowledge()),
        (ControlMessage(), 1, Acknowledge()),
        (LeaseLost(), 1, Leave()),
        (Failed(PERMANENT), 1, DeadLetter(PERMANENT, attempts=1)),
        (Failed(UNUSABLE), 1, DeadLetter(UNUSABLE, attempts=1)),
        (Failed(KILLED), 1, DeadLetter(KILLED, attempts=0)),
        (Failed(KILLED), 3, DeadLetter(KILLED, attempts=2)),
        (Failed(EXPIRED), 1, DeadLetter(EXPIRED, attempts=0)),
        (Failed(EXPIRED), 3, DeadLetter(EXPIRED, attempts=2)),
        (Failed(TRANSIENT), 1, Return(10, attempt=True)),
        (Failed(TRANSIENT), 2, Return(20, attempt=True)),
        (Failed(TRANSIENT), 3, DeadLetter(TRANSIENT, attempts=3)),
        (Failed(TRANSIENT), 4, DeadLetter(TRANSIENT, attempts=4)),
        (Failed(DeadlineExceeded()), 1, Return(10, attempt=True)),
        (Failed(SystemExit(1)), 1, Return(10, attempt=True)),
        (Failed(LATER), 1, Return(8, attempt=True)),
        (Failed(LATER), 3, DeadLetter(LATER, attempts=3)),
        (Failed(RetryLater(0)), 1, Return(0, attempt=True)),
        (Failed(RetryLater(43_200)), 1, Return(LONGEST_DELAY_SECONDS, attempt=True)),
        (Failed(FORGETFUL), 1, Return(10, attempt=True)),
        (Failed(FORGETFUL), 3, DeadLetter(FORGETFUL, attempts=3)),
        (Failed(ContinueLater()), 1, Return(0)),
        (Failed(ContinueLater()), 99, Return(0)),
    ],
)
def test_the_fate_of_a_message(happening, attempt, decision):
    assert decided(happening, attempt=attempt) == decision


def test_a_retry_at_no_time_that_there_is_is_an_error_like_any_other():
    for seconds in ("soon", None, -1, float("nan")):
        error = Forgetful()
        error.seconds = seconds
        assert decided(Failed(error)) == Return(10, attempt=True)


@pytest.mark.parametrize(("receives", "seconds"), [(1, 1), (2, 2), (5, 16), (11, 900), (500, 900)])
def test_a_message_that_was_not_run_comes_back_ever_later_and_is_never_dead_lettered(
    receives, seconds
):
    decision = decided(NotStarted("ClaimRefused"), attempt=99, receives=receives)
    assert decision == Return(seconds)


@pytest.mark.parametrize(
    ("claim", "receives", "seconds"),
    [(2.5, 1, 3), (2.5, 2, 5), (2.5, 4, 20), (2.5, 9, 60), (-1, 1, 1), (50, 2, 60), (2.5, 500, 60)],
)
def test_a_job_that_runs_elsewhere_is_put_off_to_its_claims_end_doubling_up_to_the_timeout(
    claim, receives, seconds
):
    assert decided(Busy(claim), receives=receives) == Return(seconds)


@pytest.mark.parametrize(
    ("happening", "attempts"),
    [(Failed(TRANSIENT), 2), (NotStarted("NoTimeLeft"), 1), (Busy(1), 1), (Failed(LATER), 2)],
)
def test_a_message_is_dead_lettered_rather_than_come_back_when_sqs_is_about_to_delete_it(
    happening, attempts
):
    in_time = decided(happening, attempt=2, age_seconds=83 * HOUR)
    assert isinstance(in_time, Return)
    late = decided(happening, attempt=2, age_seconds=84 * HOUR)
    assert isinstance(late, DeadLetter)
    assert isinstance(late.error, Expiring)
    assert late.attempts == attempts
    assert str(late.error) == "it is 84 h old, and SQS deletes it after 96 h"


def test_a_long_delay_counts_for_a_messages_age():
    later = Failed(RetryLater(10 * HOUR))
    assert isinstance(decided(later, age_seconds=73 * HOUR), Return)
    assert isinstance(decided(later, age_seconds=75 * HOUR), DeadLetter)


@pytest.mark.parametrize(
    ("happening", "attempts"),
    [(Failed(TRANSIENT), 2), (Failed(ContinueLater()), 1), (NotStarted("NoTimeLeft"), 1)],
)
def test_a_message_is_dead_lettered_with_a_cause_before_sqs_moves_it_without_one(
    happening, attempts
):
    assert isinstance(decided(happening, attempt=2, receives=999), Return)
    last = decided(happening, attempt=2, receives=1000)
    assert isinstance(last, DeadLetter)
    assert isinstance(last.error, ReceivedTooOften)
    assert last.attempts == attempts


def test_an_old_message_that_is_done_is_done():
    assert decided(Succeeded(1), age_seconds=95 * HOUR) == Acknowledge()


def test_what_waits_in_its_group_waits_as_long_as_the_first_unless_it_is_too_old():
    young, old = (Facts(attempt=1, receives=1, age_seconds=age) for age in (0, 85 * HOUR))
    assert put_off(30, young, CONTRACT) == Return(30)
    assert isinstance(put_off(30, old, CONTRACT), DeadLetter)


@given(
    st.sampled_from(
        [
            Failed(TRANSIENT),
            Failed(RetryLater(43_200)),
            Failed(ContinueLater()),
            NotStarted("NoTimeLeft"),
            Busy(10**6),
        ]
    ),
    st.integers(1, 1000),
    st.integers(1, 999),
    st.builds(Random, st.integers()) | st.just(HighestRandom()),
    st.floats(1, 43_200),
)
def test_every_delay_is_one_that_sqs_takes_at_any_attempt(
    happening, attempt, receives, random, base
):
    retry = RetryPolicy(max_attempts=2000, backoff_base=base, backoff_cap=43_200)
    contract = replace(CONTRACT, retry=retry, timeout_seconds=900)
    facts = Facts(attempt=attempt, receives=receives, age_seconds=0)
    decision = decide(happening, facts, contract, random)
    assert type(decision.seconds) is int
    assert 0 <= decision.seconds <= LONGEST_DELAY_SECONDS


def test_no_delay_is_longer_than_sqs_still_allows_at_the_end_of_the_longest_run():
    assert LONGEST_DELAY_SECONDS == 43_200 - 900 - 300

"""The delivery contract, as far as it is decided message by message."""

from random import Random

import pytest

from redrive import ContinueLater, DeadlineExceeded, PermanentError, RetryLater
from redrive.errors import UnusablePayload
from redrive.retry import RetryPolicy
from redrive.worker.outcome import (
    LONGEST_DELAY_SECONDS,
    Acknowledge,
    ControlMessage,
    DeadLetter,
    Duplicate,
    Failed,
    NotStarted,
    Return,
    Succeeded,
    decide,
)

POLICY = RetryPolicy(max_attempts=3, backoff_base=10, backoff_cap=900)
PERMANENT = PermanentError("no such customer")
UNUSABLE = UnusablePayload("no value at `id`")
TRANSIENT = TimeoutError()


class HighestRandom(Random):
    """Draws the top of every range, so that a test sees the range."""

    def uniform(self, a: float, b: float) -> float:
        return b


@pytest.mark.parametrize(
    ("happening", "attempt", "decision"),
    [
        (Succeeded({"sent": 1}), 1, Acknowledge()),
        (Succeeded(None), 3, Acknowledge()),
        (Duplicate(), 1, Acknowledge()),
        (ControlMessage(), 1, Acknowledge()),
        (Failed(PERMANENT), 1, DeadLetter(PERMANENT)),
        (Failed(UNUSABLE), 1, DeadLetter(UNUSABLE)),
        (Failed(TRANSIENT), 1, Return(10)),
        (Failed(TRANSIENT), 2, Return(20)),
        (Failed(TRANSIENT), 3, DeadLetter(TRANSIENT)),
        (Failed(TRANSIENT), 4, DeadLetter(TRANSIENT)),
        (Failed(DeadlineExceeded()), 1, Return(10)),
        (Failed(SystemExit(1)), 1, Return(10)),
        (Failed(RetryLater(7.2)), 1, Return(8)),
        (Failed(RetryLater(0)), 1, Return(0)),
        (Failed(RetryLater(43_200)), 1, Return(LONGEST_DELAY_SECONDS)),
        (Failed(ContinueLater()), 1, Return(0)),
        (Failed(ContinueLater()), 99, Return(0)),
    ],
)
def test_the_fate_of_a_message(happening, attempt, decision):
    assert decision == decide(
        happening, attempt=attempt, receives=attempt, policy=POLICY, random=HighestRandom()
    )


def test_a_retry_later_on_the_last_attempt_is_dead_lettered():
    error = RetryLater(5)
    decision = decide(Failed(error), attempt=3, receives=3, policy=POLICY, random=Random())
    assert decision == DeadLetter(error)


@pytest.mark.parametrize(("receives", "seconds"), [(1, 1), (2, 2), (5, 16), (11, 900), (500, 900)])
def test_a_message_that_was_not_run_comes_back_ever_later_and_is_never_dead_lettered(
    receives, seconds
):
    decision = decide(
        NotStarted("ClaimRefused"),
        attempt=99,
        receives=receives,
        policy=POLICY,
        random=HighestRandom(),
    )
    assert decision == Return(seconds)


def test_no_delay_is_longer_than_sqs_still_allows_at_the_end_of_the_longest_run():
    assert LONGEST_DELAY_SECONDS == 43_200 - 900 - 300

"""Backoff with full jitter: a pure function of policy, attempt and random numbers."""

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import limits
from redrive.retry import RetryPolicy, backoff_seconds


class Draw(Random):
    """Draws at one point of every range: 0 is its bottom, 1 its top."""

    def __init__(self, point):
        super().__init__()
        self.point = point

    def uniform(self, a, b):
        return a + (b - a) * self.point


def policy(base=10, cap=900):
    return RetryPolicy(max_attempts=12, backoff_base=base, backoff_cap=cap)


@pytest.mark.parametrize(
    ("attempt", "longest"),
    [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 640), (8, 900), (1000, 900)],
)
def test_the_range_doubles_with_each_attempt_up_to_the_cap(attempt, longest):
    assert backoff_seconds(policy(), attempt, Draw(1)) == longest
    assert backoff_seconds(policy(), attempt, Draw(0.5)) == longest / 2
    assert backoff_seconds(policy(), attempt, Draw(1e-9)) == 1


@pytest.mark.parametrize(("base", "wait"), [(0.2, 1), (1.0, 1), (1.1, 2), (2.5, 3)])
def test_a_wait_is_whole_seconds_rounded_up(base, wait):
    assert backoff_seconds(policy(base), 1, Draw(1)) == wait


def test_without_a_base_or_a_cap_there_is_no_wait():
    assert backoff_seconds(policy(base=0), 5, Draw(1)) == 0
    assert backoff_seconds(policy(cap=0), 5, Draw(1)) == 0


def test_no_wait_is_longer_than_sqs_can_hide_a_message():
    assert backoff_seconds(policy(1e300, 1e308), 1000, Draw(1)) == limits.VISIBILITY_SECONDS


@settings(deadline=None)
@given(
    st.floats(0.001, 43_200),
    st.floats(0.001, 43_200),
    st.integers(1, 1000),
    st.integers(0, 2**32),
)
def test_every_wait_is_an_integer_within_its_range_and_never_zero(base, cap, attempt, seed):
    wait = backoff_seconds(policy(base, cap), attempt, Random(seed))
    assert type(wait) is int
    assert 1 <= wait <= math.ceil(min(cap, base * 2.0 ** min(attempt - 1, 500)))


def test_the_same_random_numbers_give_the_same_waits():
    first, second = (
        [backoff_seconds(policy(), attempt, Random(3)) for attempt in range(1, 9)] for _ in "ab"
    )
    assert first == second


def test_waits_are_spread_evenly_over_the_whole_range():
    """Kolmogorov and Smirnov's test: at 1.63 / sqrt(n), an even spread fails once in a hundred."""
    random, draws, longest = Random(20), 10_000, 640
    waits = Counter(backoff_seconds(policy(), 7, random) for _ in range(draws))
    assert set(waits) <= set(range(1, longest + 1))
    below, distance = 0, 0.0
    for second in range(1, longest + 1):
        below += waits[second]
        distance = max(distance, abs(below / draws - second / longest))
    assert distance < 1.63 / math.sqrt(draws)


def test_jobs_that_failed_together_do_not_come_back_together():
    random = Random(21)
    waits = Counter(backoff_seconds(policy(base=60), 1, random) for _ in range(1000))
    assert max(waits.values()) < 1000 * 0.05

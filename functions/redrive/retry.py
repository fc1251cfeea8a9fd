"""When a failed job runs again: a pure function, so that its whole behaviour is one table of
tests.
"""

import math
from dataclasses import dataclass
from random import Random

from redrive import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a job is tried, and how its waits grow. Times in seconds."""

    max_attempts: int
    backoff_base: float
    backoff_cap: float


def backoff_seconds(policy: RetryPolicy, attempt: int, random: Random) -> int:
    """Seconds to wait after failed attempt number `attempt` (from 1): full jitter, whole seconds.

    Full jitter draws from the whole range 0 to min(cap, base * 2**(attempt - 1)), so that jobs
    which failed together do not come back together:
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    SQS takes whole seconds; they are rounded up, since a wait of 0 would spin.
    """
    doublings = min(attempt - 1, 64)  # past any cap, and far from overflowing a float
    ceiling = min(policy.backoff_cap, policy.backoff_base * 2**doublings)
    return min(math.ceil(random.uniform(0, ceiling)), limits.VISIBILITY_SECONDS)

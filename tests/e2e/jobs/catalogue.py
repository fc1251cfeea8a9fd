"""The jobs that only tests need. Deployed beside the real ones by `-c catalogue=tests`."""

from datetime import timedelta
from typing import Any

from stacks.job_spec import Allow, JobSpec

# What every test job needs: little time, and the mail sink, where its effects are counted.
COMMON: dict[str, Any] = {
    "key": "id",
    "timeout": timedelta(seconds=20),
    "p99": timedelta(seconds=5),
    "max_attempts": 3,
    "permissions": (
        Allow(
            actions=("ses:SendEmail",),
            resources=("arn:{partition}:ses:{region}:{account}:identity/example.com",),
        ),
    ),
    "environment": {"SENDER": "tests@example.com"},
}

JOBS: tuple[JobSpec, ...] = (
    # Does what its payload says: succeed, raise, sleep.
    JobSpec("probe", **COMMON),
    JobSpec("ordered", fifo=True, **COMMON),
)

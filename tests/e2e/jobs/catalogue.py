"""The jobs that only tests need. Deployed beside the real ones by `-c catalogue=tests`."""

from datetime import timedelta

from stacks.job_spec import JobSpec

JOBS: tuple[JobSpec, ...] = (
    # Does what its payload says: succeed, raise, sleep.
    JobSpec(
        "probe", key="id", timeout=timedelta(seconds=20), p99=timedelta(seconds=5), max_attempts=3
    ),
    # As long as Lambda allows; its runs die, freeze or take long when told to.
    JobSpec("long", key="id", timeout=timedelta(minutes=15), p99=timedelta(seconds=5)),
    JobSpec(
        "ordered",
        key="id",
        timeout=timedelta(seconds=20),
        p99=timedelta(seconds=5),
        max_attempts=5,
        fifo=True,
    ),
)

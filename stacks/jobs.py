"""The catalogue, and the page to read first: one `JobSpec` is one job.

To add a job, add a folder `functions/<name>/` with its `handler.py`, and a spec to `JOBS`:

    JobSpec("resize_image", key="image_id", timeout=timedelta(minutes=2), p99=timedelta(seconds=20))

`key` tells one job from another, so take it from the business event: the same key is the same job
and runs once. What else a spec can say, and the defaults, are in `stacks/job_spec.py`; queues,
retries, permissions and limits follow from it.
"""

from datetime import timedelta

from stacks.job_spec import Allow, JobSpec

SENDER = "no-reply@example.com"
"""The address that mail comes from. Its domain must be a verified identity in SES."""

JOBS: tuple[JobSpec, ...] = (
    JobSpec(
        "send_email",
        key="email_id",
        timeout=timedelta(seconds=60),
        p99=timedelta(seconds=5),
        permissions=(
            Allow(
                actions=("ses:SendEmail",),
                resources=(
                    "arn:{partition}:ses:{region}:{account}:identity/" + SENDER.partition("@")[2],
                ),
            ),
        ),
        environment={"SENDER": SENDER},
    ),
)

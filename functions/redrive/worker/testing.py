"""For the tests of a job: the `Job` that its function is given.

    from redrive.worker.testing import job_for
    from resize_image.handler import run

    def test_an_image_is_resized():
        job = job_for({"image_id": "1", "source": "cat.png", "width": 80}, key="1")
        assert run(job) == {"url": "cat-80.png"}

No AWS, no Lambda and no environment: what the function itself calls is the test's to replace.
"""

from datetime import timedelta
from typing import Any

from redrive.message import job_id
from redrive.testing import lambda_context
from redrive.worker.job import Job


def job_for(
    payload: dict[str, Any],
    *,
    key: str = "1",
    name: str = "job",
    attempt: int = 1,
    time_left: timedelta = timedelta(minutes=1),
) -> Job:
    """A run of the job `name` with this payload and key, on its `attempt`, with so much time."""
    return Job(
        id=job_id(name, key),
        key=key,
        payload=payload,
        attempt=attempt,
        message_id="00000000-0000-0000-0000-000000000000",
        context=lambda_context(time_left),
    )

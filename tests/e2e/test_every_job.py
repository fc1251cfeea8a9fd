"""What holds for every job of the catalogue, the next one too: it needs only its `example.json`."""

import json
from uuid import uuid4

import pytest

from stacks.catalogue import catalogue
from tests.e2e.stack import eventually

JOBS = catalogue("tests").jobs


def outcomes(stack, job: str, job_id: str) -> list[str]:
    """How each delivery of the job was settled, as its worker's log has it."""
    lines = (json.loads(line) for line in stack.log_lines(job, f'"{job_id}"') if "{" in line)
    return [line["outcome"] for line in lines if "outcome" in line]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.spec.name)
def test_a_job_that_comes_twice_at_once_and_once_more_later_runs_once(stack, job):
    name, key = job.spec.name, str(uuid4())
    payload = json.loads((job.folder / "example.json").read_text()) | {job.spec.key: key}
    job_id = f"{name}:{key}"

    def publish(group: str) -> None:
        # Each in a group of its own, so that a FIFO queue holds none back for another.
        group_id = f"{key}-{group}" if job.spec.fifo else None
        assert stack.publisher.publish(name, payload, group_id=group_id) == job_id

    publish("first")
    publish("second")
    eventually(lambda: "Succeeded" in outcomes(stack, name, job_id), what=f"{job_id} succeeds")
    publish("later")
    eventually(
        lambda: outcomes(stack, name, job_id).count("Duplicate") == 2,
        what=f"the other two messages of {job_id} are duplicates",
    )
    assert outcomes(stack, name, job_id).count("Succeeded") == 1

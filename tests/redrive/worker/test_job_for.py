from datetime import timedelta

from redrive.worker.testing import job_for


def test_a_job_for_a_test_is_what_a_worker_would_give():
    job = job_for({"n": 1}, key="7", name="count", attempt=2, time_left=timedelta(seconds=9))
    assert (job.id, job.key, job.token) == ("count:7", "7", "count:7")
    assert (job.payload, job.attempt) == ({"n": 1}, 2)
    assert timedelta(seconds=8) < job.time_left() <= timedelta(seconds=9)

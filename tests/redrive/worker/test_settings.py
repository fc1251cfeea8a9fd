import pytest

from redrive.errors import SettingsError
from redrive.retry import RetryPolicy
from redrive.worker.settings import Settings

ENVIRONMENT = {
    "REDRIVE_STAGE": "dev",
    "REDRIVE_JOB": "send_email",
    "REDRIVE_KEY": "email_id",
    "REDRIVE_QUEUE_URL": "https://sqs/queue",
    "REDRIVE_DEAD_LETTER_QUEUE_URL": "https://sqs/dead",
    "REDRIVE_IDEMPOTENCY_TABLE": "idempotency",
    "REDRIVE_JOBS_TABLE": "jobs",
    "REDRIVE_TIMEOUT_SECONDS": "60",
    "REDRIVE_VISIBILITY_TIMEOUT_SECONDS": "360",
    "REDRIVE_RETENTION_SECONDS": "345600",
    "REDRIVE_MAX_RECEIVES": "480",
    "REDRIVE_LEASE_SECONDS": "60",
    "REDRIVE_MAX_KILLS": "3",
    "REDRIVE_P99_SECONDS": "0.5",
    "REDRIVE_BATCH_CONCURRENCY": "10",
    "REDRIVE_MAX_ATTEMPTS": "12",
    "REDRIVE_BACKOFF_BASE_SECONDS": "10",
    "REDRIVE_BACKOFF_CAP_SECONDS": "900",
}


def test_the_environment_is_read_into_typed_settings():
    settings = Settings.from_environment(ENVIRONMENT)
    assert settings.job == "send_email"
    assert settings.p99_seconds == 0.5
    assert settings.contract.retry == RetryPolicy(max_attempts=12, backoff_base=10, backoff_cap=900)


@pytest.mark.parametrize(("lease", "used"), [("60", 60), ("360", None), ("400", None)])
def test_a_lease_is_used_only_where_it_is_shorter_than_the_queues_own_timeout(lease, used):
    settings = Settings.from_environment(ENVIRONMENT | {"REDRIVE_LEASE_SECONDS": lease})
    assert settings.lease == used


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_missing_variable_is_named(name):
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment({key: ENVIRONMENT[key] for key in ENVIRONMENT if key != name})


def test_a_value_that_is_no_number_is_named_with_its_variable():
    with pytest.raises(SettingsError, match="REDRIVE_MAX_ATTEMPTS='many' is no int"):
        Settings.from_environment(ENVIRONMENT | {"REDRIVE_MAX_ATTEMPTS": "many"})


@pytest.mark.parametrize(("url", "fifo"), [("https://sqs/q", False), ("https://sqs/q.fifo", True)])
def test_a_fifo_queue_is_known_by_its_name(url, fifo):
    assert Settings.from_environment(ENVIRONMENT | {"REDRIVE_QUEUE_URL": url}).fifo is fifo

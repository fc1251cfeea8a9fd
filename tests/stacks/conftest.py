"""Each configuration is synthesised once a run; most tests look at its template."""

from datetime import timedelta
from pathlib import Path

import pytest

from stacks.job_spec import Allow, JobSpec
from stacks.stage import Stage
from tests.stacks.synthesis import Synthesis, synthesize, synthesize_app

SHOWCASE = (
    JobSpec(
        "send_invoice",
        key="invoice_id",
        timeout=timedelta(minutes=2),
        p99=timedelta(seconds=2.5),
        batch_size=100,
        batching_window=timedelta(seconds=5),
        max_attempts=8,
        max_replays=5,
        backoff_base=timedelta(seconds=0.5),
        backoff_cap=timedelta(minutes=5),
        max_concurrency=50,
        batch_concurrency=16,
        memory_mib=1024,
        publishers=("210987654321", "sns", "events", "s3"),
        permissions=(
            Allow(
                actions=("s3:GetObject", "s3:Put*"),
                resources=("arn:{partition}:s3:::invoices-{account}-{region}/*",),
                wildcards="one object per invoice",
            ),
        ),
        environment={"BUCKET": "invoices"},
    ),
    JobSpec("book_seat", key="join('/', [flight, seat])", fifo=True, max_concurrency=2),
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("synthesis")


@pytest.fixture(scope="session")
def dev(folder: Path) -> Synthesis:
    return synthesize_app(folder / "dev")


@pytest.fixture(scope="session")
def prod(folder: Path) -> Synthesis:
    return synthesize_app(folder / "prod", stage="prod")


@pytest.fixture(scope="session")
def local(folder: Path) -> Synthesis:
    """The local stage as the end-to-end tests deploy it."""
    return synthesize_app(
        folder / "local",
        stage="local",
        catalogue="tests",
        lease_seconds="3",
        backoff_base_seconds="0.5",
        backoff_cap_seconds="2",
    )


@pytest.fixture(scope="session")
def showcase(folder: Path) -> Synthesis:
    """A catalogue that uses everything that a spec can say."""
    return synthesize(folder / "showcase", *SHOWCASE)


@pytest.fixture(scope="session")
def keyed(folder: Path) -> Synthesis:
    """The showcase in production, under a customer-managed key."""
    stage = Stage(name="prod", customer_managed_key=True)
    return synthesize(folder / "keyed", *SHOWCASE, stage=stage)


@pytest.fixture(scope="session")
def dev_with_key(folder: Path) -> Synthesis:
    stage = Stage(customer_managed_key=True)
    return synthesize(folder / "dev-with-key", *SHOWCASE, stage=stage)

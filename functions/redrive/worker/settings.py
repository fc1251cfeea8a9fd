"""What the stack tells a worker through its environment, read once, on first use."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from redrive.errors import SettingsError
from redrive.retry import RetryPolicy
from redrive.worker.outcome import Contract

T = TypeVar("T", str, int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one worker; every field is one variable that `stacks/job_queue.py` sets."""

    stage: str
    job: str
    key: str
    queue_url: str
    dead_letter_queue_url: str
    idempotency_table: str
    jobs_table: str
    lease_seconds: float
    visibility_timeout_seconds: float
    p99_seconds: float
    max_kills: int
    batch_concurrency: int
    contract: Contract

    @property
    def lease(self) -> float | None:
        """The seconds of a lease; None where the queue's own visibility timeout is no longer."""
        return self.lease_seconds if self.lease_seconds < self.visibility_timeout_seconds else None

    @property
    def fifo(self) -> bool:
        """Whether the queue keeps the order inside each message group."""
        return self.queue_url.endswith(".fifo")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Reads the variables. Raises SettingsError, naming the one that is missing or wrong."""

        def read(name: str, convert: Callable[[str], T]) -> T:
            value = environment.get(name)
            if not value:
                raise SettingsError(
                    f"the variable {name} is not set; the stack sets it on each worker"
                )
            try:
                return convert(value)
            except ValueError:
                raise SettingsError(f"{name}={value!r} is no {convert.__name__}") from None

        return cls(
            stage=read("REDRIVE_STAGE", str),
            job=read("REDRIVE_JOB", str),
            key=read("REDRIVE_KEY", str),
            queue_url=read("REDRIVE_QUEUE_URL", str),
            dead_letter_queue_url=read("REDRIVE_DEAD_LETTER_QUEUE_URL", str),
            idempotency_table=read("REDRIVE_IDEMPOTENCY_TABLE", str),
            jobs_table=read("REDRIVE_JOBS_TABLE", str),
            lease_seconds=read("REDRIVE_LEASE_SECONDS", float),
            visibility_timeout_seconds=read("REDRIVE_VISIBILITY_TIMEOUT_SECONDS", float),
            p99_seconds=read("REDRIVE_P99_SECONDS", float),
            max_kills=read("REDRIVE_MAX_KILLS", int),
            batch_concurrency=read("REDRIVE_BATCH_CONCURRENCY", int),
            contract=Contract(
                timeout_seconds=read("REDRIVE_TIMEOUT_SECONDS", float),
                retention_seconds=read("REDRIVE_RETENTION_SECONDS", float),
                max_receives=read("REDRIVE_MAX_RECEIVES", int),
                retry=RetryPolicy(
                    max_attempts=read("REDRIVE_MAX_ATTEMPTS", int),
                    backoff_base=read("REDRIVE_BACKOFF_BASE_SECONDS", float),
                    backoff_cap=read("REDRIVE_BACKOFF_CAP_SECONDS", float),
                ),
            ),
        )

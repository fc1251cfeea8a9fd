"""What the stack tells the function through its environment, read once, on first use."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from redrive.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of both functions; every field is one variable that `stacks/replay.py` sets.

    `lease_seconds` is how long a run that was killed keeps others out.
    """

    stage: str
    jobs: tuple[str, ...]
    idempotency_table: str
    jobs_table: str
    lease_seconds: float

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Reads the variables. Raises SettingsError, naming the one that is missing or wrong."""

        def read(name: str) -> str:
            value = environment.get(name)
            if not value:
                raise SettingsError(f"the variable {name} is not set; the stack sets it")
            return value

        lease = read("REDRIVE_REPLAY_LEASE_SECONDS")
        try:
            lease_seconds = float(lease)
        except ValueError:
            name = f"REDRIVE_REPLAY_LEASE_SECONDS={lease!r}"
            raise SettingsError(f"{name} is no number of seconds") from None
        return cls(
            stage=read("REDRIVE_STAGE"),
            jobs=tuple(read("REDRIVE_JOBS").split(",")),
            idempotency_table=read("REDRIVE_IDEMPOTENCY_TABLE"),
            jobs_table=read("REDRIVE_JOBS_TABLE"),
            lease_seconds=lease_seconds,
        )

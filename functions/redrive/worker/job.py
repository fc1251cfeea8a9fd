"""What a job's function is given."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from redrive.message import Payload


class LambdaContext(Protocol):
    """The part of Lambda's context that a worker uses."""

    @property
    def function_name(self) -> str: ...

    @property
    def aws_request_id(self) -> str: ...

    @property
    def log_stream_name(self) -> str: ...

    def get_remaining_time_in_millis(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of one job. `attempt` counts from 1, `force` the replays that an operator forced."""

    id: str
    key: str
    payload: Payload
    attempt: int
    message_id: str
    context: LambdaContext
    force: int = 0

    @property
    def run_key(self) -> str:
        """The idempotency key of this run: the job's key, unless a finished job is forced to
        run.
        """
        return f"{self.key}{self._forced}"

    @property
    def token(self) -> str:
        """The same on every attempt: for a provider that deduplicates by a token of its
        caller's.
        """
        return f"{self.id}{self._forced}"

    @property
    def _forced(self) -> str:
        return f"#force{self.force}" if self.force else ""

    def time_left(self) -> timedelta:
        """The time until Lambda ends this invocation."""
        return timedelta(milliseconds=self.context.get_remaining_time_in_millis())

"""A few jobs first: the rest is replayed only when they have all succeeded."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Self

from redrive import aws_errors
from redrive.worker.jobs_table import Asked, JobsTable
from replay.halt import Halt

_POLL_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Canary:
    """The jobs that went first, by their new messages, and since when they are waited for."""

    jobs: tuple[Asked, ...]
    since: float

    def render(self) -> str:
        """As JSON, for the next hop."""
        return json.dumps({"since": self.since, "jobs": [asdict(one) for one in self.jobs]})

    @classmethod
    def parse(cls, text: str) -> Self:
        """The reverse of `render`."""
        told = json.loads(text)
        return cls(tuple(Asked(**one) for one in told["jobs"]), told["since"])


def await_success(canary: Canary, table: JobsTable, halt: Halt) -> None:
    """Returns when all have succeeded, or stops the run: one failed attempt is enough."""
    waiting: Sequence[Asked] = canary.jobs
    while waiting and not halt.stopped:
        try:
            histories = table.read(waiting)
        except Exception as error:
            halt.stop(f"canary: tables cannot be read: {aws_errors.code(error)}")
            return
        for one in waiting:
            history = histories.get(one.message_id)
            if history and not history.succeeded and (history.attempts or history.dead):
                why = history.cause.type if history.cause else "an unknown cause"
                halt.stop(f"canary: {one.job_id} failed by {why}")
                return
        waiting = [
            one
            for one in waiting
            if not (known := histories.get(one.message_id)) or not known.succeeded
        ]
        if waiting and time.time() > canary.since + PATIENCE_SECONDS:
            halt.stop(
                f"canary: {len(waiting)} of {len(canary.jobs)} have neither succeeded nor failed "
                f"within {PATIENCE_SECONDS:g} s"
            )
        elif waiting:
            halt.wait(_POLL_SECONDS)

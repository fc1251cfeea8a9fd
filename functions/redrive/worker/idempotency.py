"""Runs a job under Powertools idempotency, and tells what the job did rather than what Powertools
says.

One `RunSlot` per thread of a batch, built once per execution environment: a persistence layer keeps
the state of its run, so two threads cannot share one, and each layer that is made registers an
event handler on the client for ever. The client is shared.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
)

from redrive import limits
from redrive.worker.job import Job
from redrive.worker.outcome import Duplicate, Failed, Happening, NotStarted, Succeeded

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Longer than a message can live: four days in its queue, then fourteen as a dead letter.
REMEMBER_SECONDS: Final = 30 * 24 * 3600

JobFunction = Callable[[Job], Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What one run came to: `milliseconds` is None where the job was not run.

    `store_error` is the store's own failure, beside what the job did.
    """

    happening: Happening
    milliseconds: float | None
    store_error: Exception | None


class RunSlot:
    """Room for one run at a time."""

    def __init__(self, job: str, table: str, client: "DynamoDBClient") -> None:
        self._config = IdempotencyConfig(
            raise_on_no_idempotency_key=True,
            expires_after_seconds=REMEMBER_SECONDS,
            hash_function="sha256",
        )
        self._guarded = idempotent_function(
            self._run_job,
            data_keyword_argument="key",
            persistence_store=DynamoDBPersistenceLayer(table_name=table, boto3_client=client),
            config=self._config,
            # Not Powertools' default, which holds the function's name: renaming it would forget
            # all.
            key_prefix=job,
        )

    def run(self, function: JobFunction, job: Job) -> Run:
        """Runs the job unless its key has succeeded already, or is running elsewhere.

        Raises nothing. Where the store fails before the job, the job was not started; where it
        fails after, what the job did stands: Powertools would raise its own error instead of the
        job's.
        """
        self._config.register_lambda_context(job.context)  # type: ignore[arg-type]
        self._function, self._job = function, job
        self._did: Happening | None = None
        self._milliseconds: float | None = None
        store_error: Exception | None = None
        otherwise: Happening = Duplicate()
        try:
            self._guarded(key=job.run_key)
        except JobRaised:
            pass
        except IdempotencyAlreadyInProgressError:
            otherwise = NotStarted("AlreadyInProgress")
        except Exception as error:
            otherwise, store_error = NotStarted("ClaimRefused"), error
        return Run(self._did or otherwise, self._milliseconds, store_error)

    def _run_job(self, *, key: str) -> dict[str, Any]:  # noqa: ARG002 - Powertools passes it on
        start = time.perf_counter()
        try:
            result = self._function(self._job)
        except BaseException as error:
            self._did = Failed(error)
            # As an Exception, so that Powertools removes its record even after a SystemExit.
            raise JobRaised from error
        finally:
            self._milliseconds = (time.perf_counter() - start) * 1000
        self._did = Succeeded(result)
        return storable(result)


class JobRaised(Exception):
    """Tells Powertools that the job did not succeed."""


def storable(result: Any) -> dict[str, Any]:
    """The result as it is stored: never falsy (Powertools would return None for it), never too
    large.

    What is not JSON, or over 32 KB of it, is replaced by a mark. The job did its work: a result
    that cannot be kept must not make it run again.
    """
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return {"result": None, "omitted": f"not JSON: {type(error).__name__}"}
    if len(text) > limits.RESULT_BYTES:
        return {"result": None, "omitted": f"{len(text)} bytes, over {limits.RESULT_BYTES}"}
    return {"result": result}

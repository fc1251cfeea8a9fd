"""Runs a job under Powertools idempotency, and tells what the job did rather than what Powertools
says.

One `RunSlot` per thread of a batch, built once per execution environment: a persistence layer keeps
the state of its run, so two threads cannot share one, and each layer that is made registers an
event handler on the client for ever. The client is shared.
"""

import hashlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
)

from redrive import limits
from redrive.errors import Killed
from redrive.worker import leased_layer
from redrive.worker.group_commit import GroupCommit
from redrive.worker.job import Job, LambdaContext
from redrive.worker.leased_layer import DeadRun, LeasedLayer
from redrive.worker.outcome import (
    Busy,
    Duplicate,
    Failed,
    Happening,
    LeaseLost,
    NotStarted,
    Succeeded,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Longer than a message can live: four days in its queue, then fourteen as a dead letter.
REMEMBER_SECONDS: Final = 30 * 24 * 3600

# A result that the table refuses is offered again this often, until the function must return.
_SAVE_AGAIN_SECONDS: Final = 0.5
_TIME_TO_RETURN_MILLISECONDS: Final = 2_000
_END_TRIES: Final = 3

JobFunction = Callable[[Job], Any]


def record_id(job: str, run_key: str) -> str:
    """The id of a run's record, as Powertools makes it of the key that it is given."""
    return f"{job}#{hashlib.sha256(json.dumps(run_key).encode()).hexdigest()}"


class LeaseContext:
    """Stands before the Lambda context: a claim lasts no longer than the lease, nor than Lambda."""

    def __init__(self, context: LambdaContext, until: Callable[[], float]) -> None:
        self._context, self._until = context, until

    def get_remaining_time_in_millis(self) -> int:
        lease = self._until() - time.time() * 1000
        return max(min(int(lease), self._context.get_remaining_time_in_millis()), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run came to: `milliseconds` is None where the job was not run.

    `store_error` is the store's own failure, beside what the job did; `dead_run` the run before,
    whose claim had lapsed. `forget_claim` removes the claim of a run that was not started because
    its job had killed too many.
    """

    happening: Happening
    milliseconds: float | None
    store_error: BaseException | None
    dead_run: DeadRun | None
    forget_claim: Callable[[], None] | None


@dataclass(slots=True)
class _Current:
    """The run that is under way: what is asked for, and what it has done."""

    function: JobFunction
    job: Job
    did: Happening | None = None
    milliseconds: float | None = None


class RunSlot:
    """Room for one run at a time."""

    def __init__(
        self,
        job: str,
        table: str,
        client: "DynamoDBClient",
        *,
        max_kills: int,
        group: GroupCommit | None = None,
    ) -> None:
        self._name = job
        self._layer = LeasedLayer(table_name=table, client=client, max_kills=max_kills, group=group)
        self._config = IdempotencyConfig(
            raise_on_no_idempotency_key=True,
            expires_after_seconds=REMEMBER_SECONDS,
            hash_function="sha256",
        )
        self._guarded = idempotent_function(
            self._run_job,
            data_keyword_argument="key",
            persistence_store=self._layer,
            config=self._config,
            # Not Powertools' default, which holds the function's name: renaming it would forget
            # all.
            key_prefix=job,
        )

    def run(self, function: JobFunction, job: Job, lease_until: Callable[[], float]) -> Run:
        """Runs the job unless its key has succeeded already, or is running elsewhere.

        `lease_until` tells when the lease ends, in milliseconds since the epoch. Raises nothing.
        Where the store fails before the job, the job was not started; where it fails after, what
        the job did stands: Powertools would raise its own error instead of the job's.
        """
        context = LeaseContext(job.context, lease_until)
        self._config.register_lambda_context(context)  # type: ignore[arg-type]
        self._layer.begin(job.message_id, job.context, job.attempt)
        current = self._current = _Current(function, job)
        store_error: BaseException | None = None
        otherwise: Happening = Duplicate()
        try:
            self._guarded(key=job.run_key)
        except JobRaised:
            pass
        except IdempotencyAlreadyInProgressError:
            otherwise = Busy((self._layer.busy_until / 1000) - time.time())
        except Exception as error:
            store_error = error.__cause__ or error
            otherwise = NotStarted("ClaimRefused")
        forget_claim: Callable[[], None] | None = None
        if isinstance(store_error, Killed):
            otherwise, store_error = Failed(store_error), None
            forget_claim = self._layer.forgetting(record_id(self._name, job.run_key))
        elif isinstance(store_error, leased_layer.LeaseLost):
            current.did, store_error = LeaseLost(), None
        elif store_error and isinstance(current.did, Succeeded):
            current.did, store_error = self._save_again(job, current.did)
        elif store_error:
            self._end(job, tries=1 if current.did is None else _END_TRIES)
        return Run(
            happening=current.did or otherwise,
            milliseconds=current.milliseconds,
            store_error=store_error,
            dead_run=self._layer.dead_run,
            forget_claim=forget_claim,
        )

    def renew(self, until: float) -> None:
        """Lengthens the claim of the run that is under way; see `LeasedLayer.renew`."""
        self._layer.renew(until)

    def _run_job(self, *, key: str) -> dict[str, Any]:  # noqa: ARG002 - Powertools passes it on
        current = self._current
        start = time.perf_counter()
        try:
            result = _finished(current.function(current.job))
        except BaseException as error:
            current.did = Failed(error)
            # As an Exception, so that Powertools removes its record even after a SystemExit.
            raise JobRaised from error
        finally:
            current.milliseconds = (time.perf_counter() - start) * 1000
        current.did = Succeeded(result)
        return storable(result)

    def _end(self, job: Job, *, tries: int) -> None:
        """Takes the claim's sting, where one stands that should not: it would count as a kill."""
        key = record_id(self._name, job.run_key)
        for left in reversed(range(tries)):
            try:
                self._layer.end(key)
            except Exception:
                time.sleep(_SAVE_AGAIN_SECONDS if left else 0)
            else:
                return

    def _save_again(self, job: Job, did: Succeeded) -> tuple[Happening, BaseException | None]:
        """Offers the result until the table takes it, or the time is up: the job is done anyway."""
        while True:
            try:
                key: Any = job.run_key
                self._layer.save_success(data=key, result=storable(did.result))
            except leased_layer.LeaseLost:
                return LeaseLost(), None
            except Exception as error:
                if job.context.get_remaining_time_in_millis() < _TIME_TO_RETURN_MILLISECONDS:
                    return did, error
                time.sleep(_SAVE_AGAIN_SECONDS)
            else:
                return did, None


def _finished(result: Any) -> Any:
    """Refuses what has not run yet: acknowledged as done, its job would be lost."""
    if isinstance(result, Coroutine | Generator):
        result.close()
    if isinstance(result, Awaitable | Generator | AsyncGenerator):
        raise TypeError(
            f"the job's function returned a {type(result).__name__}, which has not run; it must be "
            "a plain function, which may call asyncio.run"
        )
    return result


class JobRaised(Exception):
    """Tells Powertools that the job did not succeed."""


def storable(result: Any) -> dict[str, Any]:
    """The result as it is stored: never falsy (Powertools would return None for it), never too
    large.

    What is not JSON, or over 32 KB of it, is replaced by a mark. The job did its work: a result
    that cannot be kept must not make it run again.
    """
    try:
        # With sorted keys, as Powertools will: that fails for keys of several types.
        text = json.dumps(result, allow_nan=False, sort_keys=True)
    except Exception as error:  # also of the result itself: a dict may change under way
        return {"result": None, "omitted": f"not JSON: {type(error).__name__}"}
    if len(text) > limits.RESULT_BYTES:
        return {"result": None, "omitted": f"{len(text)} bytes, over {limits.RESULT_BYTES}"}
    return {"result": result}

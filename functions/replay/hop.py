"""One invocation's part of a run: what its time allows; the rest is left to the next."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import uniform
from typing import TYPE_CHECKING, Any, Final

from redrive import aws_errors
from redrive.discovery import Destination
from redrive.worker.job import LambdaContext
from redrive.worker.jobs_table import JobsTable
from replay import confirm
from replay.confirm import Confirmed
from replay.errors import NotConfirmed
from replay.event import Request
from replay.halt import TIME, Halt
from replay.operation import Operation
from replay.pace import Pace
from replay.runs import LockLost, Run, Runs
from replay.settings import Settings
from replay.sweep import Task, TooMany
from replay.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

# So many times fourteen minutes; Lambda's own guard is off, see `stacks/replay.py`.
MOST_HOPS: Final = 100
_BEATS_A_LEASE: Final = 3
_TRIES: Final = 4
# A killed scan gives all back within twice the time in which its lock lapses.
_LEASES_HELD: Final = 1.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What outlives an invocation."""

    settings: Settings
    sqs: "SQSClient"
    ssm: "SSMClient"
    lambda_: "LambdaClient"
    table: JobsTable
    runs: Runs
    telemetry: Telemetry


class Hop:
    """`run` is None for what only reads: it has no row and no lock.

    `confirmed` is what a purge's event confirms; its later hops have it from the first one.
    """

    def __init__(
        self,
        environment: Environment,
        request: Request,
        destination: Destination,
        run: Run | None,
        context: LambdaContext,
        *,
        seconds: float,
        confirmed: Confirmed | None = None,
    ) -> None:
        self._environment, self._request, self._run = environment, request, run
        self._context = context
        self._started = time.monotonic()
        self._number = run.hop if run else 0
        self._halt = Halt(seconds)
        self._writing = threading.Lock()
        self._task = Task(
            request=request,
            destination=destination,
            sqs=environment.sqs,
            table=environment.table,
            halt=self._halt,
            hold_seconds=_LEASES_HELD * environment.settings.lease_seconds,
            moment=run.moment if run else int(time.time() * 1000),
            pace=Pace(request.rate),
        )
        self._operation = Operation(
            self._task, confirmed=confirmed, state=run.state if run else None, save=self._save
        )

    def do(self) -> dict[str, Any]:
        """Works for its time; returns the answer. Raises NotConfirmed, and what was not foreseen
        where nothing was done before.
        """
        operation, halt = self._operation, self._halt
        before = operation.report.answer()
        error: Exception | None = None
        with self._lock_kept():
            try:
                operation.run()
            except TooMany as too_many:
                error = NotConfirmed(f"{too_many}. List again, and confirm what it shows.")
                halt.stop(str(error))
            except Exception as unforeseen:
                error = unforeseen
                halt.stop(f"failed: {aws_errors.code(unforeseen)}")
                self._environment.telemetry.fault(self._run, unforeseen)
        answer = self._end(operation.report.failed - before["failed"])
        if self._run:
            self._environment.telemetry.report(self._run, self._number, answer, before)
        if error and not self._number and not operation.report.removed:
            raise error
        return answer

    def unfinished(self) -> dict[str, Any]:
        """The answer as far as it is known."""
        if self._run is None:
            return self._answer("SQS or DynamoDB did not answer in time")
        return self._answer(
            f'SQS or DynamoDB did not answer in time; see "action": "status", "run": '
            f'"{self._run.id}", which says if the event must be given once more'
        )

    def _end(self, failed: int) -> dict[str, Any]:
        run, runs, reason = self._run, self._environment.runs, self._halt.reason
        if run is None:
            return self._answer("time: only a part was read" if reason == TIME else reason)
        try:
            if reason == TIME and run.hop + 1 < MOST_HOPS:
                answer = self._answer(self._goes_on())
                with self._writing:
                    runs.hand_over(run, self._operation.state(), answer)
                self._invoke_next(run)
                return answer
        except Exception as error:
            reason = f"it cannot go on: {aws_errors.code(error)}"
        if reason is None and failed:
            reason = f"{failed} could not be done; see errors"
        answer = self._answer(reason)
        try:
            with self._writing:
                runs.finish(run, answer)
        except Exception as error:
            answer |= {
                "complete": False,
                "incomplete": f"{reason or 'done'}; but its row cannot be written: "
                f"{aws_errors.code(error)}",
            }
        return answer

    def _goes_on(self) -> str:
        run = self._run.id if self._run else None
        return f'it goes on by itself; see "action": "status", "run": "{run}"'

    def _invoke_next(self, run: Run) -> None:
        event = {"job": run.job, "continue": run.id, "hop": run.hop}
        self._environment.lambda_.invoke(
            FunctionName=self._context.function_name,
            InvocationType="Event",
            Payload=json.dumps(event).encode(),
        )

    def _answer(self, incomplete: str | None) -> dict[str, Any]:
        request, report = self._request, self._operation.report
        token = None
        if request.only_reads and incomplete is None:
            listed = Confirmed(count=report.matched, moment=self._task.moment)
            token = confirm.token(request.fields, listed)
        more: dict[str, Any] = {}
        if request.filters.ids is not None:
            more["not_found"] = sorted(request.filters.ids - report.found)
        if request.action == "replay" and request.dry_run:
            more["would_replay"] = min(report.waiting, request.limit or report.waiting)
        return {
            "job": request.job,
            "action": request.action,
            "dry_run": request.dry_run,
            **report.answer(),
            **more,
            "confirm": token,
            "run": self._run.id if self._run else None,
            "complete": incomplete is None,
            "incomplete": incomplete,
            "elapsed_ms": int((time.monotonic() - self._started) * 1000),
        }

    # --- the run's row, while it runs -------------------------------------------------------------

    def _save(self) -> bool:
        """Before letters go that are counted: a kill must not make them be forgotten."""
        if self._run is None:
            return True
        for attempt in range(1, _TRIES + 1):
            try:
                with self._writing:
                    self._run.state = self._operation.state()
                    self._environment.runs.write(self._run)
            except Exception as error:
                if not aws_errors.may_pass(error) or attempt == _TRIES:
                    self._halt.stop(f"its row cannot be written: {aws_errors.code(error)}")
                if self._halt.wait(uniform(0, 0.4 * attempt)):
                    return False
            else:
                return True
        return False

    def _renew(self, run: Run) -> None:
        with self._writing:
            run.state = self._operation.state()
            run.answer = self._answer(self._goes_on())
            self._environment.runs.renew(run)

    @contextmanager
    def _lock_kept(self) -> Iterator[None]:
        """Renews the run's lock, and writes how far it is, while the block runs."""
        if self._run is None:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(
            target=self._keep_lock, args=(self._run, ended), name="lock", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _keep_lock(self, run: Run, ended: threading.Event) -> None:
        lease = self._environment.settings.lease_seconds
        locked_until = time.monotonic() + lease
        while not ended.wait(lease / _BEATS_A_LEASE):
            begun = time.monotonic()
            try:
                self._renew(run)
                locked_until = begun + lease
            except LockLost as lost:
                self._halt.stop(f"it was away for too long: {lost}")
            except Exception as error:
                if time.monotonic() > locked_until:
                    self._halt.stop(f"its lock cannot be renewed: {aws_errors.code(error)}")

"""One invocation's part of a run: what its time allows; the rest is left to the next."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from replay.operation import Operation, TooMany
from replay.runs import LockLost, Run, Runs
from replay.settings import Settings
from replay.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

# So many times fourteen minutes; Lambda's own guard is off, see `stacks/replay.py`.
MOST_HOPS: Final = 100
_BEATS_A_LEASE: Final = 3


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
    """`run` is None for what only reads: it has no row and no lock."""

    def __init__(
        self,
        environment: Environment,
        request: Request,
        destination: Destination,
        run: Run | None,
        context: LambdaContext,
    ) -> None:
        self._environment, self._request, self._run = environment, request, run
        self._destination, self._context = destination, context
        self._started = time.monotonic()
        self._moment = run.moment if run else int(time.time() * 1000)
        self._first = run is None or run.hop == 0

    def do(self, seconds: float) -> dict[str, Any]:
        """Works for so long at most; returns the answer. Raises NotConfirmed."""
        halt = Halt(seconds)
        operation = self._operation(halt)
        before = operation.report.answer()
        error: Exception | None = None
        with self._lock_kept(operation, halt):
            try:
                operation.run()
            except TooMany as too_many:
                error = NotConfirmed(f"{too_many}. List again, and confirm what it shows.")
                halt.stop(str(error))
            except Exception as unforeseen:
                error = unforeseen
                halt.stop(f"failed: {aws_errors.code(unforeseen)}")
        answer = self._end(operation, halt)
        if self._run:
            done = {name: answer[name] - before[name] for name in ("replayed", "purged")}
            self._environment.telemetry.report(self._run, answer, failed=answer["failed"], **done)
        if error and self._first:
            raise error
        return answer

    def _operation(self, halt: Halt) -> Operation:
        confirmed = None
        if self._request.action == "purge" and not self._request.only_reads and self._first:
            confirmed = confirm.check(self._request.fields)
        return Operation(
            self._request,
            self._destination,
            sqs=self._environment.sqs,
            table=self._environment.table,
            halt=halt,
            # A killed scan gives all back within twice the time in which its lock lapses.
            hold_seconds=1.9 * self._environment.settings.lease_seconds,
            moment=self._moment,
            confirmed=confirmed,
            state=self._run.state if self._run else None,
        )

    def _end(self, operation: Operation, halt: Halt) -> dict[str, Any]:
        run, runs = self._run, self._environment.runs
        if run is None:
            if halt.reason == TIME:
                halt.reason = "time: only a part of the queue was read"
            return self._answer(operation, halt.reason)
        if halt.reason == TIME and run.hop + 1 < MOST_HOPS:
            answer = self._answer(operation, self._goes_on(run))
            try:
                runs.hand_over(run, operation.state(), answer)
                self._invoke_next(run)
            except Exception as error:
                answer = self._answer(operation, f"cannot go on: {aws_errors.code(error)}")
                runs.finish(run, answer)
            return answer
        answer = self._answer(operation, halt.reason)
        runs.finish(run, answer)
        return answer

    def _goes_on(self, run: Run) -> str:
        return f'it goes on by itself; see "action": "status", "run": "{run.id}"'

    def _invoke_next(self, run: Run) -> None:
        event = {"job": run.job, "continue": run.id, "hop": run.hop}
        self._environment.lambda_.invoke(
            FunctionName=self._context.function_name,
            InvocationType="Event",
            Payload=json.dumps(event).encode(),
        )

    def _answer(self, operation: Operation, incomplete: str | None) -> dict[str, Any]:
        request, report = self._request, operation.report
        token = None
        if request.only_reads and incomplete is None:
            token = confirm.token(
                request.fields, Confirmed(count=report.matched, moment=self._moment)
            )
        return {
            "job": request.job,
            "action": request.action,
            "dry_run": request.dry_run,
            **report.answer(),
            "confirm": token,
            "run": self._run.id if self._run else None,
            "complete": incomplete is None,
            "incomplete": incomplete,
            "elapsed_ms": int((time.monotonic() - self._started) * 1000),
        }

    @contextmanager
    def _lock_kept(self, operation: Operation, halt: Halt) -> Iterator[None]:
        """Renews the run's lock, and writes how far it is, while the block runs."""
        run = self._run
        if run is None:
            yield
            return
        ended = threading.Event()
        lease = self._environment.settings.lease_seconds

        def renew() -> None:
            locked_until = time.monotonic() + lease
            while not ended.wait(lease / _BEATS_A_LEASE):
                run.answer = self._answer(operation, self._goes_on(run))
                try:
                    self._environment.runs.renew(run)
                    locked_until = time.monotonic() + lease
                except LockLost as lost:
                    halt.stop(f"it was away for too long: {lost}")
                except Exception as error:
                    if time.monotonic() > locked_until:
                        halt.stop(f"its lock cannot be renewed: {aws_errors.code(error)}")

        thread = threading.Thread(target=renew, name="lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

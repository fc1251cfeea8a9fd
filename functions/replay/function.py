"""The Lambda handler of both functions: an event in, an answer out, within the time that a client
waits.
"""

import math
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, Final

import boto3

from redrive import clients
from redrive.discovery import discover
from redrive.worker.job import LambdaContext
from redrive.worker.jobs_table import JobsTable
from replay import confirm
from replay.direct import direct
from replay.errors import BadEvent
from replay.event import read_event
from replay.hop import Environment, Hop
from replay.runs import Runs
from replay.scan import THREADS
from replay.settings import Settings
from replay.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

# A client gives up after 60 s without an answer, and invokes once more; an answer comes within 45.
# After the work's time, calls under way must end, and what was read must be given back.
# https://docs.aws.amazon.com/botocore/latest/reference/config.html (read_timeout)
SECONDS_TO_WORK: Final = 22.0
ANSWER_SECONDS: Final = 43.0
_SECONDS_TO_END: Final = 30.0
_CALL_SECONDS: Final = 5.0

# Garbage is looked for after so many new objects. The letters in hand are tens of thousands, none
# of them in a cycle, and to look through them as often as Python would takes much of the CPU. But
# botocore leaves a cycle after each call that breaks off: some hundred objects, and what it sent.
COLLECT_AFTER: Final = 10_000


class ReplayFunction:
    """Takes the event of `replay.event`; `actions` are those that this function may do.

    Nothing is read or connected before the first invocation. The other arguments are for tests.
    """

    def __init__(
        self,
        actions: Collection[str],
        *,
        settings: Settings | None = None,
        sqs: "SQSClient | None" = None,
        dynamodb: "DynamoDBClient | None" = None,
        ssm: "SSMClient | None" = None,
        lambda_: "LambdaClient | None" = None,
        seconds_to_work: float = SECONDS_TO_WORK,
    ) -> None:
        self._actions = actions
        self._settings, self._seconds_to_work = settings, seconds_to_work
        self._sqs, self._dynamodb, self._ssm, self._lambda = sqs, dynamodb, ssm, lambda_
        self._environment: Environment | None = None

    def __call__(self, event: Any, context: LambdaContext) -> dict[str, Any]:
        """Does what the event asks.

        Raises Refused, when nothing was done; UnknownJob, where a job is not deployed; and
        SettingsError.
        """
        begun = time.monotonic()
        if self._environment is None:
            self._environment = self._build()
        environment = self._environment
        if isinstance(event, Mapping) and "continue" in event and "replay" in self._actions:
            return self._go_on(environment, event, context)
        request = read_event(event, environment.settings.jobs, self._actions)
        if request.action == "status":
            return environment.runs.status(request.job, request.run)
        destination = discover(environment.ssm, environment.settings.stage, request.job)
        run, confirmed = None, None
        if request.only_reads:
            environment.runs.refuse_while_running(request.job)
        else:
            if request.action == "purge":
                confirmed = confirm.check(request.fields)
            # What died, or was sent, after the list was not looked at.
            moment = confirmed.moment if confirmed else math.inf
            run = environment.runs.begin(request.job, request.fields, moment)
        seconds = self._seconds_to_work - (time.monotonic() - begun)
        hop = Hop(
            environment, request, destination, run, context, seconds=seconds, confirmed=confirmed
        )
        return _answer_by(hop, begun + ANSWER_SECONDS)

    def _go_on(
        self, environment: Environment, event: Mapping[str, Any], context: LambdaContext
    ) -> dict[str, Any]:
        job, run_id, number = (event.get(name) for name in ("job", "continue", "hop"))
        if not (isinstance(job, str) and isinstance(run_id, str) and isinstance(number, int)):
            raise BadEvent(
                '"continue" is what a run says to itself; an operator gives a new event, or asks '
                'for the "status"'
            )
        run = environment.runs.resume(job, run_id, number)
        if run is None:
            return {"incomplete": "this part of the run has been done"}
        request = read_event(run.fields, environment.settings.jobs, self._actions)
        destination = discover(environment.ssm, environment.settings.stage, request.job)
        seconds = context.get_remaining_time_in_millis() / 1000 - _SECONDS_TO_END
        return Hop(environment, request, destination, run, context, seconds=seconds).do()

    def _build(self) -> Environment:
        settings = self._settings or Settings.from_environment()
        session = boto3.Session()

        def client(service: str, attempts: int) -> Any:
            make: Any = session.client
            config = clients.config(
                threads=2 * THREADS, attempts=attempts, read_timeout_seconds=_CALL_SECONDS
            )
            return make(service, config=config)

        # A direct call takes thrice its time at most: the client may make it twice more.
        credentials = session.get_credentials()
        dynamodb = self._dynamodb or direct(client("dynamodb", 2), credentials, "batch_get_item")
        sqs = self._sqs or direct(
            client("sqs", 2),
            credentials,
            "receive_message",
            "send_message_batch",
            "delete_message_batch",
        )
        return Environment(
            settings=settings,
            sqs=sqs,
            ssm=self._ssm or client("ssm", 3),
            lambda_=self._lambda or client("lambda", 3),
            table=JobsTable(settings.jobs_table, settings.idempotency_table, dynamodb),
            runs=Runs(dynamodb, settings.jobs_table, lease_seconds=settings.lease_seconds),
            telemetry=Telemetry(settings.stage),
        )


def _answer_by(hop: Hop, deadline: float) -> dict[str, Any]:
    """The hop's answer; where its last calls hang, the answer as far as it is known by then."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="hop")
    try:
        return pool.submit(hop.do).result(timeout=deadline - time.monotonic())
    except FutureTimeout:
        return hop.unfinished()
    finally:
        pool.shutdown(wait=False)

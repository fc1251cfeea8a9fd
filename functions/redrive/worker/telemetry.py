"""A worker's log lines and metrics: what happened to which job, never what was in it."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Final, TypeVar, cast

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from redrive import aws_errors
from redrive.message import ENVELOPE
from redrive.worker.batch import Delivery
from redrive.worker.causes import fingerprint, place
from redrive.worker.job import LambdaContext
from redrive.worker.leased_layer import DeadRun
from redrive.worker.outcome import (
    AlreadyDead,
    Busy,
    ControlMessage,
    DeadLetter,
    Duplicate,
    Dying,
    Failed,
    LeaseLost,
    NotStarted,
    Return,
    Succeeded,
)

NAMESPACE: Final = "Redrive"

# What CloudWatch takes for a dimension's value; of others it drops the dimension, not the point.
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html
_NOT_IN_A_DIMENSION: Final = re.compile("[^ -~]")
_DIMENSION_CHARACTERS: Final = 1024

_COUNTERS: Final[Mapping[type, str]] = {
    Succeeded: "Succeeded",
    Duplicate: "Duplicate",
    AlreadyDead: "Duplicate",
    Dying: "Failed",
    ControlMessage: "ControlMessage",
    Failed: "Failed",
    Busy: "HandedBack",
    NotStarted: "HandedBack",
    LeaseLost: "LeaseLost",
}


Line = TypeVar("Line", bound=Callable[..., None])


def _quiet(line: Line) -> Line:
    """What cannot be told must not fail the batch that it is about."""

    @wraps(line)
    def tell(*arguments: Any, **keys: Any) -> None:
        with suppress(Exception):
            line(*arguments, **keys)

    return cast("Line", tell)


class Telemetry:
    """Speaks for one worker. The lines may come from any thread, the metrics from one."""

    def __init__(self, *, stage: str, job: str) -> None:
        self._logger = Logger(service=job)
        self._dimensions = {"stage": stage, "job": job}
        # At the cold start: growth needs a point to grow from, and a quiet job has none.
        self._emit({"DeadLettered": 0})

    @contextmanager
    def batch(self, context: LambdaContext, deliveries: Iterable[Delivery]) -> Iterator[None]:
        """Names the invocation in every line of a batch, and measures it whatever happens."""
        self._logger.append_keys(function_request_id=context.aws_request_id)
        try:
            yield
        finally:
            self._measure(one for one in deliveries if one.decision is not None)

    @_quiet
    def settled(self, delivery: Delivery) -> None:
        """One line for what became of a message."""
        happening, decision = delivery.happening, delivery.decision
        keys: dict[str, Any] = {**_identity(delivery), "outcome": type(happening).__name__}
        if isinstance(happening, Failed):
            keys |= _error_keys(happening.error)
        if isinstance(happening, NotStarted):
            keys["reason"] = happening.reason
        if delivery.milliseconds is not None:
            keys["duration_ms"] = round(delivery.milliseconds, 1)
        if ENVELOPE in delivery.message.attributes and delivery.message.envelope is None:
            keys["redrive_attribute"] = "ignored: not valid version 1"
        if isinstance(decision, Return):
            keys["visible_again_in_seconds"] = decision.seconds
        if isinstance(decision, DeadLetter):
            self._logger.error("job dead-lettered", **keys)
        elif isinstance(happening, Failed):
            self._logger.warning("job failed", **keys)
        else:
            self._logger.info("job settled", **keys)

    @_quiet
    def trouble(self, what: str, delivery: Delivery, error: BaseException) -> None:
        """One line for a failure beside the job's own."""
        self._logger.error(what, **_identity(delivery), **_error_keys(error.__cause__ or error))

    @_quiet
    def visibility_trouble(self, what: str, code: str, count: int) -> None:
        """SQS or the table refused to hold so many messages for as long as was asked."""
        self._logger.error(what, error=code, messages=count)
        self._emit({"VisibilityRefused": count})

    @_quiet
    def run_killed(self, delivery: Delivery, dead_run: DeadRun) -> None:
        """A run before this one ended without a word; found out by its claim, which had lapsed."""
        self._logger.error(
            "run was killed",
            **_identity(delivery),
            kills=dead_run.kills,
            killed_request_id=dead_run.request_id,
            killed_log_stream=dead_run.log_stream,
        )
        self._emit({"RunKilled": 1})

    @_quiet
    def _measure(self, deliveries: Iterable[Delivery]) -> None:
        counts: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        times: dict[str, list[float]] = {"Duration": [], "QueueWait": []}
        now = time.time() * 1000
        for delivery in deliveries:
            counts[_COUNTERS[type(delivery.happening)]] += 1
            if delivery.cause:
                reasons[_dimension(delivery.cause.type)] += 1
            if delivery.milliseconds is not None:
                times["Duration"].append(delivery.milliseconds)
                if delivery.message.receives == 1:
                    waited = now - delivery.milliseconds - delivery.message.sent_at
                    times["QueueWait"].append(waited)
        if reasons:
            counts["DeadLettered"] = reasons.total()
        self._emit(counts, times)
        for reason, count in reasons.items():
            self._emit({"DeadLettered": count}, reason=reason)

    def _emit(
        self,
        counts: Mapping[str, int],
        times: Mapping[str, Iterable[float]] = {},
        **dimensions: str,
    ) -> None:
        # A provider of its own for each set of dimensions: one buffer would merge them.
        metrics = AmazonCloudWatchEMFProvider(
            namespace=NAMESPACE,
            service="",  # `job` says it
            default_dimensions=self._dimensions | dimensions,
        )
        for name, count in counts.items():
            metrics.add_metric(name, MetricUnit.Count, count)
        for name, values in times.items():
            # CloudWatch drops a whole line for one value that is no number.
            for value in filter(math.isfinite, values):
                metrics.add_metric(name, MetricUnit.Milliseconds, max(value, 0))
        if metrics.metric_set:
            metrics.flush_metrics()


def _dimension(value: str) -> str:
    return _NOT_IN_A_DIMENSION.sub("?", value)[:_DIMENSION_CHARACTERS]


def _identity(delivery: Delivery) -> dict[str, Any]:
    return {
        "job_id": delivery.job_id,
        "message_id": delivery.message.id,
        "attempt": delivery.attempt,
        "receives": delivery.message.receives,
    }


def _error_keys(error: BaseException) -> dict[str, Any]:
    # Never the error's message: it often quotes the payload.
    return {"error": aws_errors.code(error), "fingerprint": fingerprint(error), "at": place(error)}

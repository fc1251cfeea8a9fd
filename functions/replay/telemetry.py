"""One line and three counters for each part of a run."""

from collections.abc import Mapping
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from redrive import aws_errors
from redrive.worker.causes import place
from redrive.worker.telemetry import NAMESPACE
from replay.runs import Run

_METRICS: Final = {"Replayed": "replayed", "Purged": "purged", "ReplayFailed": "failed"}
_COUNTS: Final = ("scanned", "matched", "replayed", "purged", "skipped", "failed")


class Telemetry:
    """Speaks for the runs of a stage."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._logger = Logger(service="replay")

    def report(
        self, run: Run, hop: int, answer: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        """What was asked, why, and what came of it; the metrics are of this part alone."""
        self._logger.info(
            "replay run",
            run=run.id,
            hop=hop,
            job=run.job,
            # Not what is asked of payloads: it may name people.
            event={one: run.fields[one] for one in run.fields if one not in ("confirm", "where")},
            complete=answer["complete"],
            incomplete=answer["incomplete"],
            elapsed_ms=answer["elapsed_ms"],
            **{name: answer[name] for name in _COUNTS},
        )
        metrics = AmazonCloudWatchEMFProvider(
            namespace=NAMESPACE,
            service="",
            default_dimensions={"stage": self._stage, "job": run.job},
        )
        for name, count in _METRICS.items():
            metrics.add_metric(name, MetricUnit.Count, answer[count] - before[count])
        metrics.flush_metrics()

    def fault(self, run: Run | None, error: BaseException) -> None:
        """A failure of ours, with where it was raised, and not its message."""
        self._logger.error(
            "replay failed",
            run=run.id if run else None,
            error=aws_errors.code(error),
            at=place(error),
        )

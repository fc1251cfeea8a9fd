"""One line and three counters for each part of a run."""

from collections.abc import Mapping
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from redrive.worker.telemetry import NAMESPACE
from replay.runs import Run

_COUNTS: Final = ("scanned", "matched", "replayed", "purged", "skipped", "failed")


class Telemetry:
    """Speaks for the runs of a stage."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._logger = Logger(service="replay")

    def report(
        self, run: Run, answer: Mapping[str, Any], *, replayed: int, purged: int, failed: int
    ) -> None:
        """What was asked, why, and what came of it; the numbers are those of this part alone."""
        self._logger.info(
            "replay run",
            run=run.id,
            hop=run.hop,
            job=run.job,
            event={name: run.fields[name] for name in run.fields if name != "confirm"},
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
        metrics.add_metric("Replayed", MetricUnit.Count, replayed)
        metrics.add_metric("Purged", MetricUnit.Count, purged)
        metrics.add_metric("ReplayFailed", MetricUnit.Count, failed)
        metrics.flush_metrics()

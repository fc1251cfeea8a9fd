"""The dashboard: a row for the whole system, a row for each job, and what their logs tell."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.alarms import late
from stacks.metrics import AGE, NOT_VISIBLE, VISIBLE, JobMetrics, math

# CloudWatch's grid is 24 wide: six graphs to a job.
_NARROW, _QUARTER, _HALF = 4, 6, 12

# https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
_ALARMS_OF_A_WIDGET = 100

_PERCENTILES = ("p50", "p95", "p99")

# Of the worker's lines on what became of a message.
_LAST_CAUSES = (
    'filter message = "job dead-lettered"',
    "stats count(*) as dead, max(@timestamp) as last by service, outcome, error, fingerprint, at",
    "sort last desc",
    "limit 20",
)
# Those whose job ran, whatever became of it.
_SLOWEST_JOBS = (
    "filter ispresent(duration_ms)",
    "fields @timestamp, service, job_id, duration_ms, outcome, attempt, function_request_id",
    "sort duration_ms desc",
    "limit 20",
)


def create_dashboard(
    scope: Construct, jobs: Sequence[JobMetrics], pages: Sequence[cloudwatch.Alarm]
) -> cloudwatch.Dashboard:
    """The stage's dashboard; `pages` are the alarms that wake somebody."""
    return cloudwatch.Dashboard(
        scope,
        "Dashboard",
        # The widgets' own periods: else a look at a week makes a rate an hour of a rate a minute.
        period_override=cloudwatch.PeriodOverride.INHERIT,
        widgets=[_system(jobs, pages), *(_row(job) for job in jobs), _logs(jobs)] if jobs else [],
    )


def _system(
    jobs: Sequence[JobMetrics], pages: Sequence[cloudwatch.Alarm]
) -> list[cloudwatch.IWidget]:
    dead = [job.dead_letters(VISIBLE) for job in jobs]
    held = [job.dead_letters(NOT_VISIBLE) for job in jobs]
    succeeded = [job.told("Succeeded") for job in jobs]
    return [
        cloudwatch.SingleValueWidget(
            title="All jobs",
            metrics=[
                _total("waiting", [job.queue(VISIBLE) for job in jobs]),
                _total("in flight", [job.queue(NOT_VISIBLE) for job in jobs]),
                _total("dead", dead + held),
                _total("succeeded", succeeded),
            ],
            width=_QUARTER,
            height=_QUARTER,
        ),
        cloudwatch.AlarmStatusWidget(
            title="Alarms that wake somebody",
            alarms=list(pages)[:_ALARMS_OF_A_WIDGET],
            width=_QUARTER,
            height=_QUARTER,
        ),
        _graph("Succeeded a minute", _by_job(jobs, succeeded), width=_QUARTER, stacked=True),
        _graph("Dead letters", _by_job(jobs, dead), width=_QUARTER, stacked=True),
    ]


def _row(metrics: JobMetrics) -> list[cloudwatch.IWidget]:
    spec = metrics.job.spec
    durations, waits = (
        [metrics.told(name, p).with_(label=f"{label} {p}") for p in _PERCENTILES]
        for name, label in (("Duration", "run"), ("QueueWait", "wait"))
    )
    return [
        _graph(
            f"{spec.name}: messages",
            [
                metrics.queue(VISIBLE).with_(label="waiting"),
                metrics.queue(NOT_VISIBLE).with_(label="in flight"),
                metrics.queue("ApproximateNumberOfMessagesDelayed").with_(label="delayed"),
                metrics.dead().with_(label="dead"),
            ],
        ),
        _graph(
            f"{spec.name}: dead letters a minute",
            [metrics.growth().with_(label="new")],
            left_annotations=[_line("page", spec.growth_threshold_per_minute)],
        ),
        _graph(
            f"{spec.name}: oldest, in seconds",
            [metrics.queue(AGE).with_(label="waiting")],
            right=[metrics.dead_letters(AGE).with_(label="dead")],
            left_annotations=[_line("page", late(spec) / timedelta(seconds=1))],
        ),
        _graph(
            f"{spec.name}: jobs a minute",
            [
                metrics.told("Succeeded").with_(label="succeeded"),
                metrics.told("Failed").with_(label="retried"),
                metrics.told("DeadLettered").with_(label="dead"),
                metrics.told("Duplicate").with_(label="duplicate"),
            ],
        ),
        _graph(
            f"{spec.name}: milliseconds",
            durations,
            right=waits,
            left_annotations=[_line("declared p99", spec.p99 / timedelta(milliseconds=1))],
        ),
        _graph(
            f"{spec.name}: batches at once",
            [metrics.worker("ConcurrentExecutions", "Maximum").with_(label="worker")],
            left_annotations=[_line("max_concurrency", spec.max_concurrency)],
        ),
    ]


def _logs(jobs: Iterable[JobMetrics]) -> list[cloudwatch.IWidget]:
    names = [metrics.job.log_group.log_group_name for metrics in jobs]
    return [
        cloudwatch.LogQueryWidget(
            title=title, log_group_names=names, query_lines=list(lines), width=_HALF, height=_HALF
        )
        for title, lines in (
            ("Last causes of death", _LAST_CAUSES),
            ("Slowest jobs", _SLOWEST_JOBS),
        )
    ]


def _total(name: str, metrics: Iterable[cloudwatch.IMetric]) -> cloudwatch.IMetric:
    prefix = name.replace(" ", "_")
    parts = {f"{prefix}{index}": metric for index, metric in enumerate(metrics)}
    return math(f"SUM([{','.join(parts)}])", **parts).with_(label=name)


def _by_job(
    jobs: Iterable[JobMetrics], metrics: Iterable[cloudwatch.Metric]
) -> list[cloudwatch.IMetric]:
    pairs = zip(jobs, metrics, strict=True)
    return [metric.with_(label=one.job.spec.name) for one, metric in pairs]


def _graph(
    title: str, left: Sequence[cloudwatch.IMetric], width: int = _NARROW, **options: Any
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title,
        left=left,
        width=width,
        height=_QUARTER,
        left_y_axis=cloudwatch.YAxisProps(min=0, show_units=False),
        right_y_axis=cloudwatch.YAxisProps(min=0, show_units=False),
        **options,
    )


def _line(label: str, value: float) -> cloudwatch.HorizontalAnnotation:
    return cloudwatch.HorizontalAnnotation(label=label, value=value)

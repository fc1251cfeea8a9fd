"""The dashboard: what it shows, and that it shows nothing that nobody emits."""

import inspect
import json
from typing import Any

import pytest

from redrive.worker import telemetry
from tests.stacks.dashboard_body import metrics, rows
from tests.stacks.synthesis import Synthesis

TYPE = "AWS::CloudWatch::Dashboard"

OURS = ("job", "stage")
EMITTED = {
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", ("QueueName",)),
    ("AWS/SQS", "ApproximateNumberOfMessagesNotVisible", ("QueueName",)),
    ("AWS/SQS", "ApproximateNumberOfMessagesDelayed", ("QueueName",)),
    ("AWS/SQS", "ApproximateAgeOfOldestMessage", ("QueueName",)),
    # https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
    ("AWS/Lambda", "ConcurrentExecutions", ("FunctionName",)),
    # `redrive.worker.telemetry`
    *(
        ("Redrive", name, OURS)
        for name in ("Succeeded", "Failed", "DeadLettered", "Duplicate", "Duration", "QueueWait")
    ),
}


@pytest.fixture(params=["dev", "prod", "local", "showcase", "keyed"])
def stack(request: pytest.FixtureRequest) -> Synthesis:
    synthesis: Synthesis = request.getfixturevalue(request.param)
    return synthesis


def body(synthesis: Synthesis) -> dict[str, Any]:
    (dashboard,) = synthesis.resources(TYPE).values()
    document: dict[str, Any] = json.loads(dashboard["Properties"]["DashboardBody"])
    return document


def widgets(synthesis: Synthesis, *kinds: str) -> dict[str, dict[str, Any]]:
    """By their titles."""
    return {
        widget["properties"]["title"]: widget
        for widget in body(synthesis)["widgets"]
        if not kinds or widget["type"] in kinds
    }


def labels(widget: dict[str, Any]) -> list[str]:
    """What a widget shows, in its order; with `>` on the right axis."""
    shown = (row[-1] for row in widget["properties"]["metrics"])
    return [
        (">" if how.get("yAxis") == "right" else "") + how["label"]
        for how in shown
        if how.get("visible", True)
    ]


def lines(widget: dict[str, Any]) -> list[tuple[str, float]]:
    return [
        (line["label"], line["value"]) for line in widget["properties"]["annotations"]["horizontal"]
    ]


# Metrics


def test_widgets_show_only_what_is_emitted_with_its_dimensions(stack: Synthesis) -> None:
    assert {shown.kind for shown in metrics(body(stack))} == EMITTED


def test_dimensions_have_the_values_of_the_stacks_own(stack: Synthesis) -> None:
    values = {(name, value) for shown in metrics(body(stack)) for name, value in shown.dimensions}
    queues = {("QueueName", f"<{name}.QueueName>") for name in stack.resources("AWS::SQS::Queue")}
    workers = {
        name: worker["Properties"]["Environment"]["Variables"]
        for name, worker in stack.resources("AWS::Lambda::Function").items()
        if name.endswith("Worker")
    }
    assert values == {
        *queues,
        *(("FunctionName", f"<{name}>") for name in workers),
        *(("job", variables["REDRIVE_JOB"]) for variables in workers.values()),
        *(("stage", variables["REDRIVE_STAGE"]) for variables in workers.values()),
    }


def test_every_point_is_a_minute_whatever_time_one_looks_at(stack: Synthesis) -> None:
    assert body(stack)["periodOverride"] == "inherit"
    for row in rows(body(stack)):
        assert row[-1]["period"] == 60


# Rows


def test_the_first_row_is_the_whole_system(showcase: Synthesis) -> None:
    first = [widget for widget in body(showcase)["widgets"] if widget["y"] == 0]
    totals, alarms, succeeded, dead = first
    assert labels(totals) == ["waiting", "in flight", "dead", "succeeded"]
    pages = {
        f"<{name}.Arn>"
        for name, alarm in showcase.resources("AWS::CloudWatch::Alarm").items()
        if alarm["Properties"]["AlarmActions"] == ["<PageTopic>"]
    }
    assert set(alarms["properties"]["alarms"]) == pages
    assert labels(succeeded) == labels(dead) == ["send_invoice", "book_seat"]


def test_the_totals_are_of_every_job(showcase: Synthesis) -> None:
    expressions = {
        row[-1]["label"]: row[-1]["expression"]
        for row in widgets(showcase)["All jobs"]["properties"]["metrics"]
        if "expression" in row[-1]
    }
    assert expressions == {
        "waiting": "SUM([waiting0,waiting1])",
        "in flight": "SUM([in_flight0,in_flight1])",
        "dead": "SUM([dead0,dead1,dead2,dead3])",
        "succeeded": "SUM([succeeded0,succeeded1])",
    }


def test_each_job_has_a_row(showcase: Synthesis) -> None:
    for job in ("send_invoice", "book_seat"):
        row = {
            title.removeprefix(f"{job}: "): widget
            for title, widget in widgets(showcase).items()
            if title.startswith(job)
        }
        assert {title: labels(widget) for title, widget in row.items()} == {
            "messages": ["waiting", "in flight", "delayed", "dead"],
            "dead letters a minute": ["new"],
            "oldest, in seconds": ["waiting", ">dead"],
            "jobs a minute": ["succeeded", "retried", "dead", "duplicate"],
            "milliseconds": [
                "run p50",
                "run p95",
                "run p99",
                ">wait p50",
                ">wait p95",
                ">wait p99",
            ],
            "batches at once": ["worker"],
        }
        assert len({widget["y"] for widget in row.values()}) == 1
        own = "".join(word.capitalize() for word in job.split("_"))
        for shown in metrics({"widgets": list(row.values())}):
            for name, value in shown.dimensions:
                assert name == "stage" or value == job or value.startswith(f"<{own}")


def test_lines_show_what_pages_and_what_was_declared(showcase: Synthesis) -> None:
    graphs = widgets(showcase)
    threshold = {
        name: showcase.properties(f"SendInvoiceAlarms{name}")["Threshold"]
        for name in ("DeadLetterGrowth", "Backlog")
    }
    assert lines(graphs["send_invoice: dead letters a minute"]) == [
        ("page", threshold["DeadLetterGrowth"])
    ]
    assert lines(graphs["send_invoice: oldest, in seconds"]) == [("page", threshold["Backlog"])]
    assert lines(graphs["send_invoice: milliseconds"]) == [("declared p99", 2500)]
    assert lines(graphs["send_invoice: batches at once"]) == [("max_concurrency", 50)]


def test_the_growth_that_is_shown_is_the_one_that_pages(showcase: Synthesis) -> None:
    alarm = showcase.properties("SendInvoiceAlarmsDeadLetterGrowth")["Metrics"]
    graph = widgets(showcase)["send_invoice: dead letters a minute"]["properties"]["metrics"]
    shown = {row[-1].get("id", "expr_1"): row[-1].get("expression", row[0:2]) for row in graph}
    assert shown == {
        metric["Id"]: metric.get("Expression")
        or [metric["MetricStat"]["Metric"][part] for part in ("Namespace", "MetricName")]
        for metric in alarm
    }


def test_widgets_fill_the_grid_and_stay_within_cloudwatchs_quotas(local: Synthesis) -> None:
    shown = body(local)["widgets"]
    for y in {widget["y"] for widget in shown}:
        assert sum(widget["width"] for widget in shown if widget["y"] == y) == 24
    # https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html
    of_a_job = len([*rows(body(local))]) / 4
    assert 33 * of_a_job <= 2500  # metrics of a dashboard, of as many jobs as fit into a stack


# Logs


def test_the_last_causes_and_the_slowest_of_all_jobs_are_asked_for(
    showcase: Synthesis,
) -> None:
    queries = widgets(showcase, "log")
    assert set(queries) == {"Last causes of death", "Slowest jobs"}
    for widget in queries.values():
        query = widget["properties"]["query"]
        for job in ("SendInvoice", "BookSeat"):
            assert f"SOURCE '<{job}LogGroup>'" in query
        assert "LogGroup" not in query.replace("SendInvoiceLogGroup", "").replace(
            "BookSeatLogGroup", ""
        )


def test_the_slowest_are_asked_for_by_words_that_the_worker_writes(dev: Synthesis) -> None:
    query = widgets(dev, "log")["Slowest jobs"]["properties"]["query"]
    written = inspect.getsource(telemetry)
    assert "filter ispresent(duration_ms)" in query
    assert "sort duration_ms desc" in query
    for word in ("duration_ms", "job_id", "outcome", "attempt"):
        assert f'"{word}"' in written
        assert word in query
    assert "function_request_id=" in written
    assert "function_request_id" in query


def test_the_causes_are_asked_for_by_words_that_the_worker_writes(dev: Synthesis) -> None:
    query = widgets(dev, "log")["Last causes of death"]["properties"]["query"]
    written = inspect.getsource(telemetry)
    assert 'filter message = "job dead-lettered"' in query
    for word in ("job dead-lettered", "outcome", "error", "fingerprint", "at"):
        assert f'"{word}"' in written
        assert word in query
    assert "by service, outcome, error, fingerprint, at" in query
    assert "Logger(service=job)" in written

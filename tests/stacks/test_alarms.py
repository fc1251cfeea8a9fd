"""The alarms: that each is whole, that its runbook's events are valid, and when each fires.

When they fire is judged by `local.alarm_state`, which says what of it could not be checked against
the real CloudWatch: by both readings of what a missing value does to arithmetic, whether it looks
at two periods more than it must or at five, and with the newest minute always missing.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.alarm_state import ALARM, OK, states
from local.metric_math import Reading, Series
from redrive.worker.telemetry import NAMESPACE as WORKERS_NAMESPACE
from replay.event import ACTIONS, read_event
from stacks import metrics
from stacks.alarms import late
from stacks.job_spec import JobSpec
from stacks.stage import Stage
from tests.stacks.synthesis import Synthesis, synthesize

TYPE = "AWS::CloudWatch::Alarm"
PAGES = {"DeadLetterGrowth", "Backlog", "WorkerErrors"}
NOTES = {
    "RunKilled",
    "NewDeadLetter",
    "OldDeadLetter",
    "SlowJobs",
    "Throttles",
    "ManyHidden",
    "NotPolling",
}

LONGEST = "j" * 40


@pytest.fixture(scope="module")
def longest(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Eleven jobs, of the longest names, of a stage of the longest."""
    specs = [JobSpec(LONGEST[:-2] + f"{number:02}", key="id") for number in range(10)]
    slow = JobSpec(
        LONGEST,
        key="id",
        timeout=timedelta(minutes=14, seconds=30),
        p99=timedelta(minutes=14, milliseconds=1.5),
        batch_size=1,
        backoff_base=timedelta(hours=3),
        backoff_cap=timedelta(hours=3),
        growth_threshold_per_minute=1_000_000,
        fifo=True,
    )
    stage = Stage(name="s" * 20)
    return synthesize(tmp_path_factory.mktemp("longest"), *specs, slow, stage=stage)


@pytest.fixture(params=["dev", "prod", "local", "showcase", "keyed", "longest"])
def stack(request: pytest.FixtureRequest) -> Synthesis:
    synthesis: Synthesis = request.getfixturevalue(request.param)
    return synthesis


def alarms(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    return {name: alarm["Properties"] for name, alarm in synthesis.resources(TYPE).items()}


def alarm(synthesis: Synthesis, name: str, job: str = "SendEmail") -> dict[str, Any]:
    return alarms(synthesis)[f"{job}Alarms{name}"]


# Every alarm


def test_every_alarm_has_a_topic_a_runbook_and_a_missing_data_rule(stack: Synthesis) -> None:
    assert alarms(stack)
    for name, properties in alarms(stack).items():
        (topic,) = properties["AlarmActions"]
        assert stack.resources()[topic.strip("<>")]["Type"] == "AWS::SNS::Topic", name
        assert properties.get("ActionsEnabled", True) is True, name
        assert properties["TreatMissingData"] == "notBreaching", name
        runbook = properties["AlarmDescription"]
        assert runbook.isascii(), name
        assert len(runbook) <= 1024, name
        means, causes, then, *_ = runbook.splitlines()
        assert means.endswith((".", ".)")), name
        assert causes.startswith("Causes: "), name
        assert len(then) > 20, name


def test_every_alarm_notifies_by_itself(stack: Synthesis) -> None:
    types = {resource["Type"] for resource in stack.resources().values()}
    assert {name for name in types if "Alarm" in name} == {TYPE}


def test_alarms_that_can_be_replaced_have_no_names_and_look_at_no_more_than_a_day(
    stack: Synthesis,
) -> None:
    for name, properties in alarms(stack).items():
        assert "AlarmName" not in properties, name
        periods = {
            metric["MetricStat"]["Period"]
            for metric in properties.get("Metrics", [])
            if "MetricStat" in metric
        } or {properties["Period"]}
        (period,) = periods
        # https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
        assert period * properties["EvaluationPeriods"] <= 86_400, name
        assert properties["DatapointsToAlarm"] <= properties["EvaluationPeriods"], name
        if "Metrics" in properties:
            assert period == 60, name
            assert sum("MetricStat" in metric for metric in properties["Metrics"]) <= 10, name
            assert sum("Expression" in metric for metric in properties["Metrics"]) <= 10, name


def told(synthesis: Synthesis, topic: str) -> set[str]:
    return {
        name for name, each in alarms(synthesis).items() if each["AlarmActions"] == [f"<{topic}>"]
    }


def test_these_wake_somebody_and_the_others_do_not(prod: Synthesis, local: Synthesis) -> None:
    assert told(prod, "PageTopic") == {f"SendEmailAlarms{name}" for name in PAGES}
    notes = {f"SendEmailAlarms{name}" for name in NOTES}
    assert told(prod, "NotifyTopic") == notes | {"ReplayFailures"}
    assert len(told(local, "PageTopic")) == 4 * len(PAGES)
    assert len(told(local, "NotifyTopic")) == 4 * len(NOTES) + 1


def test_while_one_develops_only_the_pages_are_there(dev: Synthesis) -> None:
    assert set(alarms(dev)) == {f"SendEmailAlarms{name}" for name in PAGES}


def test_so_many_jobs_fit_into_a_stack(keyed: Synthesis, dev_with_key: Synthesis) -> None:
    """With room for CDK's own metadata, two addresses to mail to, and policies that are moved."""
    for synthesis, jobs in ((keyed, 22), (dev_with_key, 33)):
        names = list(synthesis.resources())
        of_a_job = sum(name.startswith("SendInvoice") for name in names)
        rest = len(names) - 2 * of_a_job
        assert jobs * of_a_job + rest + 10 <= 500


# Runbooks


def events(runbook: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(r"\{.*?\}", runbook)]


def test_the_events_of_a_runbook_can_be_pasted(stack: Synthesis) -> None:
    variables = stack.properties("ReplayFunction")["Environment"]["Variables"]
    jobs = variables["REDRIVE_JOBS"].split(",")
    for properties in alarms(stack).values():
        lines = properties["AlarmDescription"].splitlines()
        look, try_out, replay = (json.loads(line) for line in lines if line.startswith("{"))
        requests = [read_event(event, jobs, ACTIONS) for event in (look, try_out, replay)]
        assert [request.action for request in requests] == ["list", "replay", "replay"]
        assert [request.only_reads for request in requests] == [True, True, False]
        assert requests[-1].canary == 5
        for event in events(properties["AlarmDescription"]):
            read_event(event, jobs, ACTIONS)


def test_a_runbook_names_its_own_job_and_the_function_to_paste_into(showcase: Synthesis) -> None:
    for job, name in (("SendInvoice", "send_invoice"), ("BookSeat", "book_seat")):
        for page in PAGES:
            runbook = alarm(showcase, page, job)["AlarmDescription"]
            assert name in runbook.splitlines()[0]
            assert {event["job"] for event in events(runbook)} == {name}
            assert "Redrive-dev-Replay..." in runbook


# Metrics and thresholds


def test_the_functions_own_metrics_are_read_where_they_are_written() -> None:
    assert metrics.NAMESPACE == WORKERS_NAMESPACE


def read(properties: Mapping[str, Any]) -> set[tuple[str, ...]]:
    """Statistic, name, and what it is of, of each metric that an alarm reads."""
    stats = [
        metric["MetricStat"] for metric in properties.get("Metrics", []) if "MetricStat" in metric
    ]
    return {
        (
            stat["Stat"],
            stat["Metric"]["Namespace"],
            stat["Metric"]["MetricName"],
            *(dimension["Value"] for dimension in stat["Metric"]["Dimensions"]),
        )
        for stat in stats or [simple(properties)]
    }


def simple(properties: Mapping[str, Any]) -> dict[str, Any]:
    statistic = properties.get("Statistic") or properties["ExtendedStatistic"]
    return {"Metric": properties, "Stat": statistic, "Period": properties["Period"]}


QUEUE, DEAD = "<SendInvoiceQueue.QueueName>", "<SendInvoiceDeadLetterQueue.QueueName>"
OURS = ("send_invoice", "prod")  # in the order of the dimensions' names
DEAD_LETTERS = {
    ("Maximum", "AWS/SQS", "ApproximateNumberOfMessagesVisible", DEAD),
    ("Maximum", "AWS/SQS", "ApproximateNumberOfMessagesNotVisible", DEAD),
    ("Sum", "Redrive", "DeadLettered", *OURS),
}
WAITING = ("Maximum", "AWS/SQS", "ApproximateNumberOfMessagesVisible", QUEUE)

# What it reads, from where on it fires, and in how many minutes of how many.
RULES: dict[str, tuple[set[tuple[str, ...]], float, tuple[int, int]]] = {
    "DeadLetterGrowth": (DEAD_LETTERS, 10, (1, 5)),
    "Backlog": (
        {
            WAITING,
            ("Maximum", "AWS/SQS", "ApproximateAgeOfOldestMessage", QUEUE),
            ("Sum", "Redrive", "Succeeded", *OURS),
            ("Sum", "Redrive", "Duplicate", *OURS),
        },
        2 * (6 * 120 + 5),
        (12, 12),
    ),
    "WorkerErrors": ({("Sum", "AWS/Lambda", "Errors", "<SendInvoiceWorker>")}, 1, (3, 5)),
    "RunKilled": ({("Sum", "Redrive", "RunKilled", *OURS)}, 1, (1, 5)),
    "NewDeadLetter": (DEAD_LETTERS, 1, (1, 5)),
    "OldDeadLetter": (
        {("Maximum", "AWS/SQS", "ApproximateAgeOfOldestMessage", DEAD)},
        8 * 86_400,
        (1, 5),
    ),
    "SlowJobs": ({("p99", "Redrive", "Duration", *OURS)}, 2500, (3, 3)),
    "Throttles": ({("Sum", "AWS/Lambda", "Throttles", "<SendInvoiceWorker>")}, 1, (3, 5)),
    "ManyHidden": (
        {("Maximum", "AWS/SQS", "ApproximateNumberOfMessagesNotVisible", QUEUE)},
        100_000,
        (1, 5),
    ),
    "NotPolling": (
        {
            WAITING,
            ("Sum", "AWS/Lambda", "PolledEventCount", "<SendInvoiceEventSourceMapping>"),
        },
        1,
        (7, 7),
    ),
}


@pytest.mark.parametrize("name", sorted(PAGES | NOTES))
def test_an_alarm_reads_these_metrics_against_this_threshold(keyed: Synthesis, name: str) -> None:
    properties = alarm(keyed, name, "SendInvoice")
    metrics, threshold, minutes = RULES[name]
    assert read(properties) == metrics
    assert properties["Threshold"] == threshold
    assert (properties["DatapointsToAlarm"], properties["EvaluationPeriods"]) == minutes
    assert properties["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"


def test_no_alarm_counts_what_was_sent_and_misses_what_sqs_moves(stack: Synthesis) -> None:
    assert "NumberOfMessagesSent" not in stack.path.read_text()


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        # The mean of the retries' waits; two visibility timeouts.
        ({}, 2435),
        ({"timeout": timedelta(minutes=15)}, 2 * 90 * 60),
        ({"max_attempts": 1}, 2 * 360),
    ],
)
def test_a_job_is_late_when_its_retries_or_two_throttles_would_not_make_it_so(
    spec: dict[str, Any], seconds: int
) -> None:
    assert late(JobSpec("send_email", key="id", **spec)) == timedelta(seconds=seconds)


def test_long_runs_and_waiting_groups_have_more_time(longest: Synthesis) -> None:
    slow = LONGEST.capitalize()
    assert alarm(longest, "Backlog", slow)["EvaluationPeriods"] == 15 + 10
    assert alarm(longest, "NotPolling", slow)["EvaluationPeriods"] == 15 + 180 + 5


def test_ten_jobs_share_an_alarm_on_replays(longest: Synthesis) -> None:
    first, second = (alarms(longest)[name] for name in ("ReplayFailures", "ReplayFailures1"))
    assert len(read(first)) == 10
    assert read(second) == {("Sum", "Redrive", "ReplayFailed", LONGEST, "s" * 20)}


# The growth of the dead letters

LEAD_IN = 10


def trace(text: str) -> Series:
    return [None if point == "-" else float(point) for point in text.split()]


@dataclass(frozen=True)
class Row:
    """What a dead-letter queue shows a minute apart, after `LEAD_IN` minutes like the first.

    `counted` is the worker's; where it stays None the worker counted nothing.
    """

    visible: Series
    not_visible: Series | None = None
    counted: Series | None = None
    pages: tuple[int, int] | None = None
    """Until when it must have paged, and until when it must be OK again, if it must."""
    notifies: bool | None = False
    """None where it may or may not."""

    def series(self) -> dict[str, Series]:
        silent: Series = [None] * len(self.visible)
        held = self.not_visible or [None if point is None else 0.0 for point in self.visible]
        return {
            name: series[:1] * LEAD_IN + series
            for name, series in (
                ("ApproximateNumberOfMessagesVisible", self.visible),
                ("ApproximateNumberOfMessagesNotVisible", held),
                ("DeadLettered", self.counted or silent),
                # What SQS moves is not sent; what the worker sends it counts.
                ("NumberOfMessagesSent", self.counted or silent),
            )
        }


def scan(minutes: int, later: int) -> Row:
    """500 dead letters in somebody's hands for some minutes, the two samples some minutes apart."""
    held = [0.0] * 3 + [500.0] * minutes + [0.0] * 8
    visible = [500.0] * 3 + [0.0] * minutes + [500.0] * 8
    shifted = held[:1] * later + held[: len(held) - later] if later >= 0 else held[1:] + held[:1]
    return Row(visible, shifted, notifies=None)


NEVER = 99
TABLE = {
    "nothing": Row(trace("0 0 0 0 0")),
    "three for ever": Row(trace("3 3 3 3 3 3 3 3")),
    "twelve a minute": Row(trace("0 12 24 36"), pages=(2, NEVER), notifies=True),
    "one burst": Row(trace("0 0 120 120 120 120 120 120 120"), pages=(3, 8), notifies=True),
    "an idle queue wakes": Row(
        trace("- - - - 40"), counted=trace("- - - - 40"), pages=(4, NEVER), notifies=True
    ),
    "an idle queue wakes, moved by SQS": Row(trace("- - - - 40 40 40 40"), notifies=True),
    "a lost datapoint": Row(trace("40 40 - 40 40 40 40"), notifies=None),
    "a lost datapoint of one of the two": Row(
        trace("40 40 - 40 40 40 40"), trace("0 0 0 0 0 0 0"), notifies=None
    ),
    "two lost datapoints": Row(trace("40 40 - - 40 40 40 40"), notifies=None),
    "one of the two comes later": Row(
        trace("- - 40 40 40 40"), trace("0 0 0 0 0 0"), notifies=None
    ),
    "the other one comes later": Row(trace("0 0 0 0 0 0"), trace("- - 40 40 40 40"), notifies=None),
    "a scan": scan(minutes=1, later=0),
    "a scan, held a minute late": scan(minutes=1, later=1),
    "a scan, held a minute early": scan(minutes=1, later=-1),
    "a long scan, held a minute late": scan(minutes=4, later=1),
    "a long scan, held a minute early": scan(minutes=4, later=-1),
    "one a minute for an hour": Row([float(n) for n in range(60)], notifies=True),
    "drained or replayed": Row(trace("500 500 0 0 0 0 0")),
    "drained at once, counted": Row(
        trace("0 0 0 0"), counted=trace("- 20 20 20"), pages=(1, NEVER), notifies=True
    ),
    "no data at all": Row([None] * 60),
    "a burst, and a lost datapoint after it": Row(
        trace("0 0 120 - 120 120 120"), pages=(4, NEVER), notifies=True
    ),
    "a lost datapoint, and a burst in it": Row(
        trace("0 0 - 120 120 120 120"), pages=(4, NEVER), notifies=True
    ),
    "counted again after a cold start": Row(trace("3 3 3 3"), counted=trace("- 0 - 0")),
}

WAYS = list(product(Reading, (2, 5), (False, True)))


def judged(
    properties: Mapping[str, Any],
    series: Mapping[str, Series],
    reading: Reading = Reading.PAGE,
    extra: int = 2,
    newest_is_missing: bool = False,
) -> list[str]:
    """The states of an alarm, after the lead-in, minute by minute.

    Where the newest minute is always missing, each state is that of a minute later.
    """

    def until(start: int, end: int, *newest: None) -> list[str]:
        return states(
            properties,
            lambda stat: [*series[stat["Metric"]["MetricName"]][start:end], *newest],
            reading=reading,
            extra=extra,
        )

    length = len(series["ApproximateNumberOfMessagesVisible"])
    if not newest_is_missing:
        return until(0, length)[LEAD_IN:]
    looks_at = properties["EvaluationPeriods"] + extra
    ends = range(LEAD_IN + 1, length + 1)
    return [until(max(0, end - looks_at), end, None)[-1] for end in ends]


def wrong(row: Row, found: list[str]) -> str | None:
    """What in the states of a paging alarm is not as the row says."""
    if not {*found} <= {OK, ALARM}:
        return "has too little data"
    first = found.index(ALARM) if ALARM in found else None
    if row.pages is None:
        return None if first is None else f"pages in minute {first}"
    by, ok_again = row.pages
    if first is None or first > by:
        return f"does not page by minute {by}"
    if found[ok_again : ok_again + 1] == [ALARM]:
        return f"still pages in minute {ok_again}"
    return None


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_growth_pages_and_nothing_else_does(
    prod: Synthesis, row: Row, way: tuple[Reading, int, bool]
) -> None:
    found = judged(alarm(prod, "DeadLetterGrowth"), row.series(), *way)
    assert wrong(row, found) is None, found


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_any_growth_is_told(prod: Synthesis, row: Row, way: tuple[Reading, int, bool]) -> None:
    found = judged(alarm(prod, "NewDeadLetter"), row.series(), *way)
    assert {*found} <= {OK, ALARM}
    assert row.notifies in (None, ALARM in found), found


def test_what_is_told_is_over_by_itself(prod: Synthesis) -> None:
    row = Row(trace("0 1 1 1 1 1 1"))
    assert judged(alarm(prod, "NewDeadLetter"), row.series()) == [OK, *[ALARM] * 5, OK]


def instead(properties: Mapping[str, Any], expression: str) -> dict[str, Any]:
    """The alarm with another expression on the same metrics: v, n and c."""
    ids = {
        "v": "ApproximateNumberOfMessagesVisible",
        "n": "ApproximateNumberOfMessagesNotVisible",
        "c": "DeadLettered",
        "s": "NumberOfMessagesSent",
    }
    metrics: list[dict[str, Any]] = [
        {
            "Id": name,
            "MetricStat": {"Metric": {"MetricName": metric}, "Stat": "Maximum", "Period": 60},
            "ReturnData": False,
        }
        for name, metric in ids.items()
    ]
    *steps, last = (step.strip() for step in expression.split(";"))
    for step in steps:
        name, _, value = step.partition("=")
        metrics.append({"Id": name, "Expression": value, "ReturnData": False})
    return {**properties, "Metrics": [*metrics, {"Id": "e", "Expression": last}]}


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("RATE(v)", {"twelve a minute", "an idle queue wakes", "drained at once, counted"}),
        ("v+0", {"a lost datapoint", "one a minute for an hour", "a scan"}),
        ("s+0", {"twelve a minute", "one burst"}),
        ("DIFF(FILL(v,0))", {"a lost datapoint", "an idle queue wakes, moved by SQS", "a scan"}),
        # Simpler ones than ours, and what they get wrong.
        (
            "MAX([FILL(DIFF(FILL(v+n,REPEAT)),0),FILL(c,0)])",
            {"a scan, held a minute late", "a scan, held a minute early"},
        ),
        (
            "d=FILL(v+n,REPEAT);g=DIFF(d);t=g-DIFF(g)+IF(g<0,g,0)+0*(v+n);MAX([FILL(t,0),FILL(c,0)])",
            {"a scan, held a minute late", "a long scan, held a minute late"},
        ),
    ],
)
def test_another_expression_in_its_place_pages_wrongly_or_not_at_all(
    prod: Synthesis, expression: str, rows: set[str]
) -> None:
    alarm_instead = instead(alarm(prod, "DeadLetterGrowth"), expression)
    for name in {*rows, "nothing", "three for ever"}:
        row = TABLE[name]
        faults = [wrong(row, judged(alarm_instead, row.series(), *way)) for way in WAYS]
        assert any(faults) is (name in rows), name


@settings(deadline=None, max_examples=50)
@given(
    depths=st.lists(st.integers(0, 9), min_size=4, max_size=20),
    lost=st.sets(st.integers(0, 19), max_size=3),
    way=st.sampled_from(WAYS),
)
def test_less_than_the_threshold_never_pages_whatever_is_lost(
    prod: Synthesis, depths: list[int], lost: set[int], way: tuple[Reading, int, bool]
) -> None:
    points = [None if i in lost else float(depth) for i, depth in enumerate(depths)]
    found = judged(alarm(prod, "DeadLetterGrowth"), Row(points).series(), *way)
    assert ALARM not in found


# Backlog, and a mapping that polls nothing


def of_the_queue(**named: Series) -> dict[str, Series]:
    return {
        name: named.get(short, [None] * len(named["visible"]))
        for name, short in (
            ("ApproximateNumberOfMessagesVisible", "visible"),
            ("ApproximateAgeOfOldestMessage", "age"),
            ("Succeeded", "succeeded"),
            ("Duplicate", "duplicate"),
            ("PolledEventCount", "polled"),
        )
    }


def at_last(properties: Mapping[str, Any], **named: float | None) -> set[str]:
    """The states after half an hour of the same, in each reading."""
    series = of_the_queue(**{name: [point] * 30 for name, point in named.items()})
    return {judged(properties, series, reading)[-1] for reading in Reading}


LATE = 2435.0


@pytest.mark.parametrize(
    ("expected", "metrics"),
    [
        (ALARM, {"visible": 1.0, "age": LATE, "succeeded": 600.0}),
        (OK, {"visible": 1.0, "age": LATE - 1, "succeeded": 600.0}),
        # It waits by its own wish, hidden.
        (OK, {"visible": 0.0, "age": 40_000.0, "succeeded": 600.0}),
        # Throttled: each was received three times, so that the age leaves all of them out.
        (ALARM, {"visible": 5000.0, "age": 0.0}),
        (ALARM, {"visible": 5000.0, "age": None, "succeeded": 10.0}),
        # A large import that goes well.
        (OK, {"visible": 1_000_000.0, "age": 900.0, "succeeded": 60_000.0}),
        (OK, {"visible": 1_000_000.0, "age": 900.0, "duplicate": 60_000.0}),
        (ALARM, {"visible": 1_000_000.0, "age": 900.0, "succeeded": 600.0}),
        (OK, {"visible": 0.0, "age": 0.0}),
        (OK, {"visible": None}),
    ],
)
def test_a_backlog_pages(prod: Synthesis, expected: str, metrics: dict[str, float | None]) -> None:
    assert at_last(alarm(prod, "Backlog"), **metrics) == {expected}


def test_a_backlog_of_ten_minutes_is_none(prod: Synthesis) -> None:
    series = of_the_queue(visible=[0.0] * 20 + [9000.0] * 10 + [0.0] * 5)
    assert set(judged(alarm(prod, "Backlog"), series)) == {OK}


@pytest.mark.parametrize(
    ("expected", "metrics"),
    [
        (ALARM, {"visible": 1.0, "polled": 0.0}),
        (ALARM, {"visible": 1.0, "polled": None}),
        (OK, {"visible": 50_000.0, "polled": 1.0}),
        (OK, {"visible": 0.0, "polled": 0.0}),
        (OK, {"visible": 0.0, "polled": None}),
        (OK, {"visible": None, "polled": 0.0}),
        (OK, {"visible": None, "polled": None}),
    ],
)
def test_a_mapping_that_takes_nothing_while_jobs_wait_is_told(
    prod: Synthesis, expected: str, metrics: dict[str, float | None]
) -> None:
    assert at_last(alarm(prod, "NotPolling"), **metrics) == {expected}


@pytest.mark.parametrize("name", ["Backlog", "NotPolling"])
def test_the_newest_minute_may_be_missing_for_ever(prod: Synthesis, name: str) -> None:
    series = of_the_queue(visible=[9.0] * 30, polled=[9.0] * 30, succeeded=[9.0] * 30)
    assert set(judged(alarm(prod, name), series, newest_is_missing=True)) == {OK}


@pytest.mark.parametrize(("points", "expected"), [("1 1 0 1 0", ALARM), ("0 1 0 1 0", OK)])
def test_three_minutes_of_five_with_errors_page(
    prod: Synthesis, points: str, expected: str
) -> None:
    properties = alarm(prod, "WorkerErrors")
    assert states(properties, lambda _: trace(points))[-1] == expected

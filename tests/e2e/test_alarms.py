"""The alarms of the deployed stack, as its template has them: jobs die, and somebody is called.

Their minutes end when a test says so. What judges them is ours: see `local/alarm_state.py` for what
could not be checked against the real CloudWatch.
"""

import json
from uuid import uuid4

import pytest

from local.alarm_state import ALARM, INSUFFICIENT_DATA, OK
from local.cloudwatch import Watched, synthesised
from local.pager import pager
from tests.stacks.dashboard_body import Shown, metrics

GROWTH = "ProbeAlarmsDeadLetterGrowth"


@pytest.fixture(scope="module")
def aws(stack):
    if stack.aws is None:
        pytest.skip("a real account has a CloudWatch of its own")
    return stack.aws


@pytest.fixture(scope="module")
def watched(aws):
    return Watched(aws, synthesised(aws))


@pytest.fixture
def broken(stack):
    """What `probe` needs; without it its jobs die."""
    broken = str(uuid4())
    yield broken
    stack.mend(broken)
    if stack.dead_letter_count("probe"):
        stack.replay("probe", force=True)
        stack.await_empty("probe")


def die(stack, broken, count):
    before = stack.dead_letter_count("probe")
    payloads = [
        {"id": f"{number}-{uuid4()}", "cause": "CardRefused", "dies_unless_mended": broken}
        for number in range(count)
    ]
    stack.publisher.publish_many("probe", payloads)
    stack.await_empty("probe")
    # On a slow machine a letter may have a copy: the answer to its send came too late.
    assert stack.dead_letter_count("probe") >= before + count


def test_every_alarm_of_the_template_is_watched_and_quiet_at_first(aws, watched):
    alarms = [
        resource
        for resource in synthesised(aws)["Resources"].values()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
    ]
    assert len(watched.alarms) == len(alarms) > 0
    assert {watched.state(name) for name in watched.alarms} == {INSUFFICIENT_DATA}

    watched.minute()

    assert {name: watched.state(name) for name in watched.alarms if watched.state(name) != OK} == {}


def test_three_that_died_call_nobody_and_a_burst_does_with_the_events_that_help(
    aws, stack, watched, broken
):
    with pager(aws, stack.outputs["PageTopicArn"]) as page:
        die(stack, broken, 3)
        for _ in range(5):
            watched.minute()
        assert watched.state(GROWTH) == OK

        die(stack, broken, 15)
        watched.minute()
        assert watched.state(GROWTH) == ALARM
        called = page.next()
    assert (called["NewStateValue"], GROWTH in called["AlarmName"]) == (ALARM, True)
    lines = called["AlarmDescription"].splitlines()
    look, _, replay = [json.loads(line) for line in lines if line.startswith("{")]

    answer = stack.operate("Replay", **look)
    assert {cause["cause"]: cause["count"] for cause in answer["causes"]} == {"CardRefused": 18}
    stack.mend(broken)
    assert stack.operate("Replay", **replay)["replayed"] == 18

    stack.await_empty("probe")
    for _ in range(8):
        watched.minute()
    assert watched.state(GROWTH) == OK


# MiniStack runs the functions, and does not tell how many at once.
NOT_MEASURED_HERE = {("AWS/Lambda", "ConcurrentExecutions", ("FunctionName",))}


def test_the_dashboard_shows_only_what_is_emitted(aws, stack, watched, broken):
    done = {"id": str(uuid4())}
    for payload in (done, done):
        stack.send("probe", payload)
        stack.await_empty("probe")
    die(stack, broken, 1)
    watched.minute()

    cloudwatch = stack.client("cloudwatch")
    dashboard = cloudwatch.get_dashboard(DashboardName=stack.outputs["DashboardName"])
    shown = metrics(json.loads(dashboard["DashboardBody"]))
    pages = cloudwatch.get_paginator("list_metrics").paginate()
    emitted = {
        Shown(
            one["Namespace"],
            one["MetricName"],
            tuple(sorted((it["Name"], it["Value"]) for it in one["Dimensions"])),
        )
        for page in pages
        for one in page["Metrics"]
    }

    assert {one.kind for one in shown} - {one.kind for one in emitted} == NOT_MEASURED_HERE
    of_probe = {one for one in shown if "probe" in str(one.dimensions).lower()}
    missing = {one.kind for one in of_probe - emitted}
    assert len(of_probe) > 10
    assert missing == NOT_MEASURED_HERE

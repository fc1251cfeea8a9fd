"""Alarms on an embedded AWS with a small stack of its own."""

import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from local.alarm_state import ALARM, INSUFFICIENT_DATA, OK
from local.cloudwatch import Change, Unwatched, Watched, cloudwatch, synthesised
from local.pager import NobodyCalled, pager
from local.template import without_refused
from tests.local.conftest import create_function

STACK = "Small"


def metric(name, queue="Queue", **more):
    return {
        "Namespace": "AWS/SQS",
        "MetricName": name,
        "Dimensions": [{"Name": "QueueName", "Value": {"Fn::GetAtt": [queue, "QueueName"]}}],
        **more,
    }


def alarm(**properties):
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "Threshold": 2,
            "EvaluationPeriods": 1,
            "TreatMissingData": "notBreaching",
            "AlarmActions": [{"Ref": "Topic"}],
            **properties,
        },
    }


def query(name, of, stat="Maximum"):
    stat = {"Metric": of, "Period": 60, "Stat": stat}
    return {"Id": name, "MetricStat": stat, "ReturnData": False}


VISIBLE = "ApproximateNumberOfMessagesVisible"
HIDDEN = "ApproximateNumberOfMessagesNotVisible"
DIED = {
    "Namespace": "Redrive",
    "MetricName": "DeadLettered",
    "Dimensions": [{"Name": "job", "Value": "j"}],
}
RESOURCES = {
    "Queue": {"Type": "AWS::SQS::Queue", "Properties": {}},
    "Other": {"Type": "AWS::SQS::Queue", "Properties": {}},
    "Topic": {"Type": "AWS::SNS::Topic", "Properties": {}},
    "Growth": alarm(
        AlarmDescription={"Fn::Join": ["", ["Look into ", {"Fn::GetAtt": ["Topic", "TopicName"]}]]},
        OKActions=[{"Ref": "Topic"}],
        Metrics=[
            query("v", metric(VISIBLE)),
            query("n", metric(HIDDEN)),
            {"Id": "g", "Expression": "DIFF(v + n)", "ReturnData": True},
        ],
    ),
    "Depth": alarm(**metric(VISIBLE), Statistic="Maximum", Period=60, Threshold=1),
    "OtherDepth": alarm(**metric(VISIBLE, "Other"), Statistic="Maximum", Period=60, Threshold=1),
    "Old": alarm(
        **metric("ApproximateAgeOfOldestMessage"), Statistic="Maximum", Period=60, Threshold=1e6
    ),
    "Counted": alarm(**DIED, Statistic="Sum", Period=60),
    "CountedLong": alarm(**DIED, Statistic="Sum", Period=180, Threshold=3),
    "NoData": alarm(**DIED, Statistic="Sum", Period=60, TreatMissingData="missing"),
}
TEMPLATE = {"Resources": RESOURCES}


@pytest.fixture(scope="module")
def deployed(aws):
    cloudformation = aws.client("cloudformation")
    body = json.dumps(without_refused(TEMPLATE, STACK))
    cloudformation.create_stack(StackName=STACK, TemplateBody=body)
    cloudformation.get_waiter("stack_create_complete").wait(
        StackName=STACK, WaiterConfig={"Delay": 1}
    )
    resources = cloudformation.describe_stack_resources(StackName=STACK)["StackResources"]
    return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources}


@pytest.fixture
def queue(aws, deployed):
    yield deployed["Queue"]
    aws.client("sqs").purge_queue(QueueUrl=deployed["Queue"])


def watch(aws, **more):
    """Its minutes end when a test says so."""
    return Watched(aws, TEMPLATE, STACK, **more)


def send(aws, queue, count):
    for number in range(count):
        aws.client("sqs").send_message(QueueUrl=queue, MessageBody=str(number))


@pytest.fixture(scope="module")
def die(aws):
    """A worker that counts so many dead letters."""
    create_function(aws, "worker", "def handler(event, context): print(event['line'])")
    directive = {
        "Namespace": "Redrive",
        "Dimensions": [["job"]],
        "Metrics": [{"Name": "DeadLettered"}],
    }
    metadata = {"CloudWatchMetrics": [directive]}

    def die(count):
        line = json.dumps({"_aws": metadata, "job": "j", "DeadLettered": [1.0] * count})
        event = json.dumps({"line": line})
        assert "FunctionError" not in aws.client("lambda").invoke(
            FunctionName="worker", Payload=event
        )

    return die


def of_ours(changes, name):
    return [(change.before, change.state) for change in changes if name in change.alarm]


def test_every_alarm_of_the_template_is_there_and_judged_by_its_own_metric(aws, queue):
    watched = watch(aws)
    assert watched.state("Small-Growth") == INSUFFICIENT_DATA
    send(aws, queue, 1)

    watched.minute()

    assert {name.split("-")[1]: watched.state(name) for name in watched.alarms} == {
        "Growth": OK,
        "Depth": ALARM,
        "OtherDepth": OK,  # the same metric of another queue
        "Old": OK,
        "Counted": OK,
        "CountedLong": OK,
        "NoData": INSUFFICIENT_DATA,
    }
    there = aws.client("cloudwatch").describe_alarms(AlarmNamePrefix="Small-")["MetricAlarms"]
    assert {one["AlarmName"]: one["StateValue"] for one in there} == {
        name: watched.state(name) for name in watched.alarms
    }


def test_growth_calls_and_calls_off_with_what_the_alarm_says(aws, deployed, queue):
    watched = watch(aws)
    watched.minute()
    with pager(aws, deployed["Topic"]) as page:
        send(aws, queue, 1)
        assert of_ours(watched.minute(), "Growth") == []
        send(aws, queue, 2)
        assert of_ours(watched.minute(), "Growth") == [(OK, ALARM)]
        assert of_ours(watched.minute(), "Growth") == [(ALARM, OK)]

        calls = [page.next(), page.next(), page.next()]
    growth = [call for call in calls if "Growth" in call["AlarmName"]]
    assert [call["NewStateValue"] for call in growth] == [ALARM, OK]
    topic = deployed["Topic"].rpartition(":")[2]
    assert growth[0]["AlarmDescription"] == f"Look into {topic}"
    assert Change(3, "Small-Growth", OK, ALARM) in watched.history


def test_messages_in_flight_are_counted_too(aws, queue):
    watched = watch(aws)
    send(aws, queue, 3)
    watched.minute()
    aws.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=3, VisibilityTimeout=60)

    watched.minute()

    assert watched.state("Small-Depth") == OK
    assert watched.state("Growth") == OK


def test_what_a_worker_counts_counts_in_each_period_that_it_lies_in(aws, deployed, die):
    watched = watch(aws)
    watched.minute()
    assert [watched.state(name) for name in ("NoData", "CountedLong")] == [INSUFFICIENT_DATA, OK]

    die(2)
    watched.minute()
    assert [watched.state(name) for name in ("NoData", "CountedLong")] == [ALARM, OK]

    die(1)
    watched.minute()
    assert [watched.state(name) for name in ("NoData", "CountedLong")] == [OK, ALARM]

    watched.minute()
    assert watched.state("CountedLong") == ALARM
    watched.minute()
    assert watched.state("CountedLong") == OK


def test_a_metric_minute_that_begins_in_one_of_the_clock_and_ends_in_another_is_one(aws, deployed):
    watched = watch(aws)
    watched._minutes[0] -= timedelta(minutes=3)
    for minutes_ago in (0, 1, 2):
        data = DIED | {
            "Value": 1.0,
            "Timestamp": datetime.now(UTC) - timedelta(minutes=minutes_ago),
        }
        del data["Namespace"]
        aws.client("cloudwatch").put_metric_data(Namespace="Redrive", MetricData=[data])

    watched.minute()

    assert watched.state("NoData") == ALARM


def test_a_mapping_that_polls_is_told_from_one_that_is_off(aws, deployed):
    create_function(aws, "polled", "def handler(event, context): pass")
    for queue, enabled in (("Queue", True), ("Other", False)):
        name = deployed[queue].rpartition("/")[2]
        aws.client("lambda").create_event_source_mapping(
            EventSourceArn=f"arn:aws:sqs:eu-central-2:000000000000:{name}",
            FunctionName="polled",
            Enabled=enabled,
        )
    watch(aws).minute()

    listed = aws.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    on = {one["UUID"] for one in listed if one["State"] == "Enabled"}
    counted = aws.client("cloudwatch").list_metrics(MetricName="PolledEventCount")["Metrics"]
    assert {metric["Dimensions"][0]["Value"] for metric in counted} == on
    assert len(on) == 1
    for one in listed:
        aws.client("lambda").delete_event_source_mapping(UUID=one["UUID"])


def test_an_age_is_one_of_metric_minutes_and_leaves_out_what_came_thrice(aws, queue):
    send(aws, queue, 1)
    at_speed = watch(aws, minute_seconds=1e-6)
    at_speed.minute()
    in_time = watch(aws)
    in_time.minute()
    assert (at_speed.state("Old"), in_time.state("Old")) == (ALARM, OK)

    for _ in range(3):
        aws.client("sqs").receive_message(QueueUrl=queue, VisibilityTimeout=0)
    at_speed.minute()
    assert at_speed.state("Old") == OK


def test_anybody_may_look_at_the_metrics(aws, queue):
    watch(aws).minute()
    listed = aws.client("cloudwatch").list_metrics(Namespace="AWS/SQS")["Metrics"]
    name = queue.rpartition("/")[2]
    of_queue = [one for one in listed if {"Name": "QueueName", "Value": name} in one["Dimensions"]]
    assert {one["MetricName"] for one in of_queue} == {
        VISIBLE,
        HIDDEN,
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateAgeOfOldestMessage",
    }


def test_ministack_judges_no_alarm_by_itself(aws, queue):
    watched = watch(aws)
    watched.minute()
    data = {"MetricName": VISIBLE, "Value": 100.0}
    aws.client("cloudwatch").put_metric_data(Namespace="AWS/SQS", MetricData=[data])
    (alarm,) = aws.client("cloudwatch").describe_alarms(AlarmNamePrefix="Small-Depth")[
        "MetricAlarms"
    ]
    assert alarm["StateValue"] == OK


def test_a_state_can_be_awaited_while_minutes_pass(aws, deployed, queue):
    with cloudwatch(aws, TEMPLATE, STACK, minute_seconds=0.1) as watched:
        watched.wait_for("Small-Depth", OK)
        send(aws, queue, 1)
        watched.wait_for("Small-Depth", ALARM)
        with pytest.raises(Unwatched, match=r"within 0\.1 s Small-OtherDepth.* did not.* it is OK"):
            watched.wait_for("OtherDepth", ALARM, seconds=0.1)
    with cloudwatch(aws, TEMPLATE, STACK, minute_seconds=60) as watched:
        watched.wait_for("Small-Depth", ALARM)
        aws.client("sqs").purge_queue(QueueUrl=queue)
        with pytest.raises(Unwatched):  # before the minute is over
            watched.wait_for("Small-Depth", OK, seconds=0.5)
    assert "cloudwatch" not in {thread.name for thread in threading.enumerate()}


def test_whoever_waits_is_told_when_nobody_watches_any_more(aws, deployed):
    def watch_a_queue_that_is_gone():
        with cloudwatch(aws, TEMPLATE, STACK, minute_seconds=0.1) as watched:
            watched._measures._queue_urls = [deployed["Queue"] + "-gone"]
            with pytest.raises(Unwatched, match="not watched any more"):
                watched.wait_for("OtherDepth", ALARM)

    with pytest.raises(Unwatched, match=r"not watched any more.*NonExistentQueue"):
        watch_a_queue_that_is_gone()


def test_an_alarm_is_asked_for_by_a_part_of_its_name_that_no_other_has(aws, deployed):
    watched = watch(aws)
    with pytest.raises(LookupError, match=r"'Depth' must be in one .*Small-Depth.*Small-OtherDep"):
        watched.state("Depth")
    with pytest.raises(LookupError, match="none"):
        watched.state("Nothing")
    depth = metric(VISIBLE) | {"Statistic": "Maximum", "Period": 60}
    named = {name: alarm(AlarmName=name, **depth) for name in ("depth-of-it", "depth")}
    watched = Watched(aws, {"Resources": named}, STACK)
    watched._states["depth"] = OK
    assert watched.state("depth") == OK


def test_what_an_alarm_needs_and_is_not_known_here_is_named(aws, deployed):
    strange = alarm(**metric(VISIBLE), AlarmDescription={"Fn::Sub": "x"})
    with pytest.raises(Unwatched, match="Fn::Sub"):
        Watched(aws, {"Resources": {"Strange": strange}}, STACK)


def test_the_template_is_the_one_that_was_synthesised_for_this_aws(aws):
    folder = aws.state / "cdk.out"
    folder.mkdir()
    (folder / "Small.template.json").write_text(json.dumps(TEMPLATE))
    assert synthesised(aws, STACK) == TEMPLATE


def test_a_pager_hears_what_comes_while_it_is_there_and_leaves_nothing(aws, deployed):
    sns, topic = aws.client("sns"), deployed["Topic"]
    with pager(aws, topic) as page:
        sns.publish(TopicArn=topic, Message='{"AlarmName": "a"}')
        assert page.next() == {"AlarmName": "a"}
        asked = {"QueueUrl": page._queue_url, "AttributeNames": ["All"]}
        counted = aws.client("sqs").get_queue_attributes(**asked)["Attributes"]
        assert counted["ApproximateNumberOfMessagesNotVisible"] == "0"
        with pytest.raises(NobodyCalled):
            page.next(seconds=0.1)
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []
    assert not aws.client("sqs").list_queues(QueueNamePrefix="pager-").get("QueueUrls")

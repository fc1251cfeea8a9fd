"""The alarms of a stack on the embedded AWS, as they stand in its template.

MiniStack keeps metrics and alarms, and tells SNS when an alarm's state is set; but it judges them
by neither metric math nor dimensions nor M of N. That is done here, once in a metric minute, which
may pass in seconds:

    with cloudwatch(aws, minute_seconds=2) as watched:
        watched.wait_for("SendEmailGrowth", "ALARM")

What it cannot do as the real CloudWatch: its newest minute is never late, and no queue is idle.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from local.alarm_state import INSUFFICIENT_DATA, Alarm
from local.aws import Aws
from local.deploy import STACK
from local.measures import Measures
from local.server import ACCOUNT, REGION, LocalError
from local.template import ALARM, alarm_name

# So long that whatever lies between a query's start and end is one period: until 2038.
_ONE_PERIOD = 2**31 - 1


class Unwatched(LocalError):
    """The alarms could not be watched, or are not as they were awaited."""


@dataclass(frozen=True)
class Change:
    minute: int
    alarm: str
    before: str
    state: str


@contextmanager
def cloudwatch(
    aws: Aws,
    template: Mapping[str, Any] | None = None,
    stack: str = STACK,
    *,
    minute_seconds: float = 60.0,
) -> Iterator["Watched"]:
    """Watches the alarms of the stack for the length of the block, in a thread.

    Without a template it is the one that was synthesised for this embedded AWS.

    Raises:
        Unwatched: at the block's end, when the thread had to give up.
    """
    watched = Watched(
        aws, template or synthesised(aws, stack), stack, minute_seconds=minute_seconds
    )
    ended = threading.Event()
    thread = threading.Thread(target=watched.run, args=(ended,), name="cloudwatch", daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        ended.set()
        thread.join()
    watched.check()


def synthesised(aws: Aws, stack: str = STACK) -> dict[str, Any]:
    return dict(json.loads((aws.state / "cdk.out" / f"{stack}.template.json").read_text()))


class Watched:
    """The alarms, each by its name; wherever one is asked for, a part of its name will do."""

    def __init__(
        self,
        aws: Aws,
        template: Mapping[str, Any],
        stack: str = STACK,
        *,
        minute_seconds: float = 60.0,
    ) -> None:
        self._cloudwatch = aws.client("cloudwatch")
        self._minute_seconds = minute_seconds
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self.history: list[Change] = []
        deployed = _Deployed.of(aws, stack)
        self.alarms: dict[str, Alarm] = {}
        for logical_id, resource in template["Resources"].items():
            if resource["Type"] == ALARM:
                named = deployed.ids.get(logical_id) or alarm_name(stack, logical_id, resource)
                properties = deployed.resolved(resource["Properties"] | {"AlarmName": named})
                self._cloudwatch.put_metric_alarm(**properties)
                self.alarms[properties["AlarmName"]] = Alarm.of(properties)
        self._states = dict.fromkeys(self.alarms, INSUFFICIENT_DATA)
        self._series: dict[str, list[float | None]] = defaultdict(list)
        queues = [
            deployed.ids[logical_id]
            for logical_id, resource in template["Resources"].items()
            if resource["Type"] == "AWS::SQS::Queue"
        ]
        self._measures = Measures(aws, queues, speed=60 / minute_seconds)
        self._minutes = [datetime.now(UTC)]

    def state(self, alarm: str) -> str:
        return self._states[self._named(alarm)]

    def wait_for(self, alarm: str, state: str, *, seconds: float = 90.0) -> None:
        """Until the alarm has this state.

        Raises:
            Unwatched: it had not within these seconds, or nobody watches it any more.
        """
        name = self._named(alarm)
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or self._states[name] == state, timeout=seconds
            )
            self.check()
            if (now := self._states[name]) != state:
                raise Unwatched(f"within {seconds:g} s {name} did not become {state}: it is {now}")

    def run(self, ended: threading.Event) -> None:
        due = time.monotonic()
        try:
            while not ended.wait(max(0.0, due - time.monotonic())):
                self.minute()
                due += self._minute_seconds
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def check(self) -> None:
        if self._failure:
            raise Unwatched(f"the alarms are not watched any more: {self._failure!r}")

    def minute(self) -> list[Change]:
        """A metric minute ends: what was measured in it, and what becomes of the alarms."""
        self._measures.publish()
        self._minutes.append(datetime.now(UTC))
        self._read_metrics()
        changes = []
        for name, alarm in self.alarms.items():
            series = {key: self._series[_id(metric)] for key, metric in alarm.metrics.items()}
            before = self._states[name]
            if (state := alarm.state(series, before)) != before:
                changes.append(Change(len(self._minutes) - 1, name, before, state))
        for change in changes:
            self._tell(change)
        return changes

    def _tell(self, change: Change) -> None:
        # SNS first: who has waited for the state finds the message.
        reason = f"{change.before} until minute {change.minute} of this watch"
        self._cloudwatch.set_alarm_state(
            AlarmName=change.alarm, StateValue=change.state, StateReason=reason
        )
        with self._changed:
            self._states[change.alarm] = change.state
            self.history.append(change)
            self._changed.notify_all()

    def _read_metrics(self) -> None:
        """Adds the value of this minute to the series of each metric that an alarm needs."""
        by_period: dict[int, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        for alarm in self.alarms.values():
            metrics = {_id(metric): metric for metric in alarm.metrics.values()}
            by_period[alarm.period_minutes] |= metrics
        for period_minutes, metrics in by_period.items():
            answer = self._cloudwatch.get_metric_data(
                MetricDataQueries=[
                    {"Id": f"m{number}", "MetricStat": {**metric, "Period": _ONE_PERIOD}}
                    for number, metric in enumerate(metrics.values())
                ],
                StartTime=self._minutes[-1 - period_minutes :][0],
                EndTime=self._minutes[-1],
            )
            for key, result in zip(metrics, answer["MetricDataResults"], strict=True):
                self._series[key].append(result["Values"][0] if result["Values"] else None)

    def _named(self, part: str) -> str:
        names = [name for name in self.alarms if part in name]
        if part in names or len(names) == 1:
            return part if part in names else names[0]
        raise LookupError(f"{part!r} must be in one alarm's name, not in {names or 'none'}")


def _id(metric: Mapping[str, Any]) -> str:
    return json.dumps(metric, sort_keys=True)


@dataclass(frozen=True)
class _Deployed:
    ids: Mapping[str, str]
    """What `Ref` returns for each logical id."""

    @classmethod
    def of(cls, aws: Aws, stack: str) -> "_Deployed":
        pseudo = {"AWS::AccountId": ACCOUNT, "AWS::Region": REGION, "AWS::Partition": "aws"}
        pages = aws.client("cloudformation").get_paginator("list_stack_resources")
        ids = {
            resource["LogicalResourceId"]: resource["PhysicalResourceId"]
            for page in pages.paginate(StackName=stack)
            for resource in page["StackResourceSummaries"]
        }
        return cls(pseudo | {"AWS::StackName": stack} | ids)

    def resolved(self, value: Any) -> Any:
        """The value without intrinsic functions."""
        match value:
            case {"Ref": name}:
                return self.ids[name]
            case {"Fn::GetAtt": [name, "QueueName"]}:
                return self.ids[name].rpartition("/")[2]
            case {"Fn::GetAtt": [name, "TopicName"]}:
                return self.ids[name].rpartition(":")[2]
            case {"Fn::Join": [separator, parts]}:
                return separator.join(self.resolved(parts))
            case dict() if any(key.startswith("Fn::") for key in value):
                raise Unwatched(f"an alarm needs what is not known here: {json.dumps(value)}")
            case dict():
                return {key: self.resolved(item) for key, item in value.items()}
            case list():
                return [self.resolved(item) for item in value]
        return value

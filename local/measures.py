"""The metrics that AWS's services publish and MiniStack does not: of queues, logs and functions."""

import contextlib
import json
import re
import ssl
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from local.aws import Aws

Datum: TypeAlias = dict[str, Any]

_DEPTHS = {
    "ApproximateNumberOfMessages": "ApproximateNumberOfMessagesVisible",
    "ApproximateNumberOfMessagesNotVisible": "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed": "ApproximateNumberOfMessagesDelayed",
}
# SQS leaves out of a standard queue's age what was received this often.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
_RECEIVES_LEFT_OUT = 3
# What MiniStack says in its log of an event source's invocation.
_INVOKED = re.compile(
    r"ESM: Lambda (\S+) (?:failed processing SQS batch|processed (\d+) SQS messages) from (\S+)"
)


class Measures:
    """Measures the queues and reads the log since it last did, and publishes what it found.

    `speed` is how many seconds of the metrics' time pass in one: an age counts in those.
    """

    def __init__(self, aws: Aws, queue_urls: Sequence[str], *, speed: float) -> None:
        self._sqs, self._cloudwatch = aws.client("sqs"), aws.client("cloudwatch")
        self._lambda = aws.client("lambda")
        self._queue_urls = queue_urls
        self._speed = speed
        self._log = Tail(aws.log)
        self._endpoint = aws.endpoint
        trusted = ssl.create_default_context(cafile=aws.env["AWS_CA_BUNDLE"])
        self._direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )

    def publish(self) -> None:
        data: dict[str, list[Datum]] = defaultdict(list)
        for url in self._queue_urls:
            data["AWS/SQS"] += self._measure(url)
        mappings = self._polling_mappings()
        for mapping in mappings.values():
            data["AWS/Lambda"].append(_polled(mapping, 0))
        for namespace, datum in metrics_of(self._log.lines(), mappings):
            data[namespace].append(datum)
        for namespace, all_of_it in data.items():
            # MiniStack takes it in one piece; CloudWatch would take a thousand.
            self._cloudwatch.put_metric_data(Namespace=namespace, MetricData=all_of_it)

    def _measure(self, queue_url: str) -> Iterator[Datum]:
        named = {"QueueName": queue_url.rpartition("/")[2]}
        asked = {"QueueUrl": queue_url, "AttributeNames": list(_DEPTHS)}
        depths = self._sqs.get_queue_attributes(**asked)["Attributes"]
        for attribute, metric in _DEPTHS.items():
            yield _datum(metric, [float(depths[attribute])], named)
        # Of an empty queue it need not be asked: each question costs a TLS connection.
        any_there = any(int(depth) for depth in depths.values())
        age = self._oldest_age(queue_url) if any_there else 0.0
        yield _datum("ApproximateAgeOfOldestMessage", [age], named)

    def _polling_mappings(self) -> dict[str, str]:
        """The event source mappings that take messages, by their queue's name."""
        listed = self._lambda.list_event_source_mappings()["EventSourceMappings"]
        return {
            mapping["EventSourceArn"].rpartition(":")[2]: mapping["UUID"]
            for mapping in listed
            if mapping["State"] == "Enabled"
        }

    def _oldest_age(self, queue_url: str) -> float:
        """By MiniStack's own page: SQS tells nobody the age of a message but who receives it."""
        query = urllib.parse.urlencode({"QueueUrl": queue_url})
        with self._direct.open(f"{self._endpoint}/_ministack/sqs/messages?{query}") as answer:
            accounts = json.load(answer)["messages"].values()
        sent = [
            message["SentTimestamp"]
            for account in accounts
            for region in account.values()
            for messages in region.values()
            for message in messages
            if message["ReceiveCount"] < _RECEIVES_LEFT_OUT
        ]
        return max(0.0, time.time() - min(sent)) * self._speed if sent else 0.0


class Tail:
    """A log from now on."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = log.stat().st_size

    def lines(self) -> list[str]:
        """What was added since the last time; a line that is still being written comes later."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            lines, newline, _ = log.read().rpartition(b"\n")
        self._read += len(lines) + len(newline)
        return lines.decode(errors="replace").split("\n") if newline else []


def metrics_of(lines: Iterable[str], mappings: Mapping[str, str]) -> Iterator[tuple[str, Datum]]:
    """The metrics in a log, with their namespace: EMF lines, and invocations by event sources.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
    """
    for line in lines:
        if line.startswith('{"_aws"'):
            # A line that a kill cut short holds no metrics, for CloudWatch either.
            with contextlib.suppress(ValueError):
                yield from _embedded(json.loads(line))
        elif invoked := _INVOKED.search(line):
            function, processed, queue = invoked.groups()
            named = {"FunctionName": function}
            yield "AWS/Lambda", _datum("Invocations", [1.0], named)
            yield "AWS/Lambda", _datum("Errors", [0.0 if processed else 1.0], named)
            if queue in mappings:
                # Of a batch that failed the log does not say how many it had.
                yield "AWS/Lambda", _polled(mappings[queue], int(processed or 1))


def _polled(mapping: str, count: int) -> Datum:
    return _datum("PolledEventCount", [float(count)], {"EventSourceMappingUUID": mapping})


def _embedded(line: dict[str, Any]) -> Iterator[tuple[str, Datum]]:
    for directive in line["_aws"]["CloudWatchMetrics"]:
        for names in directive["Dimensions"]:
            dimensions = {name: line[name] for name in names}
            for metric in directive["Metrics"]:
                values = line[metric["Name"]]
                values = values if isinstance(values, list) else [values]
                yield directive["Namespace"], _datum(metric["Name"], values, dimensions)


def _datum(name: str, values: list[float], dimensions: dict[str, str]) -> Datum:
    listed = [{"Name": key, "Value": value} for key, value in dimensions.items()]
    return {"MetricName": name, "Values": values, "Dimensions": listed}

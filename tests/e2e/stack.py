"""A deployed stack as the end-to-end tests see it: from outside, by AWS's own calls."""

import json
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import boto3

from local.aws import Aws
from redrive import Publisher

T = TypeVar("T")

# Far beyond what anything here takes, so that a slow machine is slow and not red.
PATIENCE_SECONDS = 90.0


def eventually(probe: Callable[[], T], *, what: str) -> T:
    """The first truthy answer of `probe`. Fails, saying what did not happen, when there is none."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if answer := probe():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"within {PATIENCE_SECONDS:g} s: {what}")


class OperatorRefused(Exception):
    """The function's error, by its type and message."""


class Sink:
    """The mail sink's own interface."""

    def __init__(self, url: str) -> None:
        self._url = url

    def sent(self, email_id: str) -> list[dict[str, str]]:
        return [mail for mail in self.all_sent() if mail["email_id"] == email_id]

    def all_sent(self) -> list[dict[str, str]]:
        mails: list[dict[str, str]] = self._call("GET", "/sent")
        return mails

    def fail(self, **fault: Any) -> None:
        self._call("POST", "/faults", fault)

    def heal(self) -> None:
        self.fail(status=503, seconds=0)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self._url + path, method=method, data=json.dumps(body).encode() if body else None
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read() or "null")


@dataclass(frozen=True)
class Stack:
    stage: str
    outputs: dict[str, str]
    client: Callable[..., Any]
    publisher: Publisher
    sink: Sink | None = None
    log: Path | None = None
    authority: str | None = None
    aws: Aws | None = None
    """The embedded one."""

    @classmethod
    def embedded(cls, aws: Aws, outputs: dict[str, str]) -> Self:
        publisher = Publisher("local", sqs=aws.client("sqs"), ssm=aws.client("ssm"))
        sink, authority = Sink(aws.mail_sink_url), aws.env["AWS_CA_BUNDLE"]
        return cls("local", outputs, aws.client, publisher, sink, aws.log, authority, aws)

    @classmethod
    def on_aws(cls, stage: str) -> Self:
        described = boto3.client("cloudformation").describe_stacks(StackName=f"Redrive-{stage}")
        outputs = {
            output["OutputKey"]: output["OutputValue"]
            for output in described["Stacks"][0]["Outputs"]
        }
        return cls(stage, outputs, boto3.client, Publisher(stage))

    def client_as(self, access_key: dict[str, str], service: str) -> Any:
        """A client of somebody else than whoever runs the tests."""
        ours = self.client(service)
        return boto3.client(
            service,
            region_name=ours.meta.region_name,
            endpoint_url=ours.meta.endpoint_url,
            verify=self.authority,
            config=ours.meta.config,
            aws_access_key_id=access_key["AccessKeyId"],
            aws_secret_access_key=access_key["SecretAccessKey"],
        )

    def log_lines(self, job: str, text: str) -> list[str]:
        """The lines with this text that the job's worker has logged."""
        if self.log:
            return [line for line in self.log.read_text().splitlines() if text in line]
        lambda_, function = self.client("lambda"), self.outputs[f"{_pascal(job)}WorkerName"]
        group = lambda_.get_function_configuration(FunctionName=function)["LoggingConfig"]
        events = self.client("logs").filter_log_events(
            logGroupName=group["LogGroup"], filterPattern=f'"{text}"'
        )
        return [event["message"] for event in events["events"]]

    # --- queues -----------------------------------------------------------------------------------

    def queue_url(self, job: str) -> str:
        return self.outputs[f"{_pascal(job)}QueueUrl"]

    def send(self, job: str, body: Any, **more: Any) -> str:
        text = body if isinstance(body, str) else json.dumps(body)
        sqs = self.client("sqs")
        return sqs.send_message(QueueUrl=self.queue_url(job), MessageBody=text, **more)["MessageId"]

    def await_dead_letter(self, job: str, body: str) -> dict[str, Any]:
        """The dead letter with this body, taken off the queue."""
        return eventually(
            lambda: self._take_dead_letter(job, body), what=f"a dead letter {body[:80]}"
        )

    def _take_dead_letter(self, job: str, body: str) -> dict[str, Any] | None:
        sqs, url = self.client("sqs"), self.outputs[f"{_pascal(job)}DeadLetterQueueUrl"]
        received = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=2,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        for message in received.get("Messages", []):
            if message["Body"] == body:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                return message
        return None

    def dead_letter_count(self, job: str) -> int:
        url = self.outputs[f"{_pascal(job)}DeadLetterQueueUrl"]
        name = "ApproximateNumberOfMessages"
        counted = self.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        return int(counted["Attributes"][name])

    def await_empty(self, job: str) -> None:
        """Until the job's queue holds no message, in flight or not."""
        sqs, url = self.client("sqs"), self.queue_url(job)
        names = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        ]

        def empty() -> bool:
            counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
            return not any(int(count) for count in counts.values())

        eventually(empty, what=f"the queue of {job} is empty")

    # --- the operator -----------------------------------------------------------------------------

    def operate(self, function: str, **event: Any) -> dict[str, Any]:
        """Invokes `Replay` or `Inspect` as the console does, and returns what it answers."""
        answer = self.client("lambda").invoke(
            FunctionName=self.outputs[f"{function}FunctionName"], Payload=json.dumps(event)
        )
        told = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise OperatorRefused(told["errorType"], told["errorMessage"])
        return told

    def replay(self, job: str, **event: Any) -> dict[str, Any]:
        return self.operate("Replay", job=job, action="replay", reason="a test", **event)

    def mend(self, what: str) -> None:
        """From now on the jobs that die unless it is mended live."""
        self.client("dynamodb").put_item(
            TableName=self.outputs["JobsTableName"],
            Item={"id": {"S": f"mended:{what}"}, "record": {"S": "mended"}},
        )

    # --- what jobs left behind --------------------------------------------------------------------

    def rows(self, partition: str, record: str) -> list[dict[str, Any]]:
        """The rows of the jobs table whose record begins so, in its order."""
        return self.client("dynamodb").query(
            TableName=self.outputs["JobsTableName"],
            KeyConditionExpression="id = :id AND begins_with(#record, :record)",
            ExpressionAttributeNames={"#record": "record"},
            ExpressionAttributeValues={":id": {"S": partition}, ":record": {"S": record}},
            ConsistentRead=True,
        )["Items"]

    def effects(self, job_id: str) -> list[int]:
        """The attempts on which the job had its effect."""
        return [int(row["attempt"]["N"]) for row in self.rows(job_id, "effect#")]

    def await_effect(self, job_id: str) -> list[int]:
        return eventually(lambda: self.effects(job_id), what=f"{job_id} has its effect")


def cause_of(dead_letter: dict[str, Any]) -> dict[str, Any]:
    return json.loads(dead_letter["MessageAttributes"]["redrive"]["StringValue"])["cause"]


def _pascal(job: str) -> str:
    return job.title().replace("_", "")

"""Somebody who is told what an SNS topic tells: an SQS queue of his own, subscribed to it."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from local.aws import Aws
from local.server import LocalError

# The longest that one call waits.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
LONGEST_WAIT_SECONDS = 20


class NobodyCalled(LocalError):
    """The topic told nothing in that time."""


class Pager:
    def __init__(self, sqs: Any, queue_url: str) -> None:
        self._sqs = sqs
        self._queue_url = queue_url

    def next(self, *, seconds: float = 90.0) -> dict[str, Any]:
        """What is told next: of an alarm `AlarmName`, `NewStateValue`, `AlarmDescription`, ….

        Raises:
            NobodyCalled: nothing was, within these seconds.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            received = self._sqs.receive_message(
                QueueUrl=self._queue_url, WaitTimeSeconds=min(LONGEST_WAIT_SECONDS, round(left))
            )
            for message in received.get("Messages", []):
                self._sqs.delete_message(
                    QueueUrl=self._queue_url, ReceiptHandle=message["ReceiptHandle"]
                )
                return dict(json.loads(message["Body"]))
        raise NobodyCalled(f"nobody called within {seconds:g} s")


@contextmanager
def pager(aws: Aws, topic_arn: str) -> Iterator[Pager]:
    """Is told everything from here to the end of the block."""
    sqs, sns = aws.client("sqs"), aws.client("sns")
    queue_url = sqs.create_queue(QueueName=f"pager-{uuid.uuid4()}")["QueueUrl"]
    names = {"QueueUrl": queue_url, "AttributeNames": ["QueueArn"]}
    queue_arn = sqs.get_queue_attributes(**names)["Attributes"]["QueueArn"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": [_allow(topic_arn, queue_arn)]})
    sqs.set_queue_attributes(QueueUrl=queue_url, Attributes={"Policy": policy})
    subscription = sns.subscribe(
        TopicArn=topic_arn,
        Protocol="sqs",
        Endpoint=queue_arn,
        Attributes={"RawMessageDelivery": "true"},
        ReturnSubscriptionArn=True,
    )
    try:
        yield Pager(sqs, queue_url)
    finally:
        sns.unsubscribe(SubscriptionArn=subscription["SubscriptionArn"])
        sqs.delete_queue(QueueUrl=queue_url)


def _allow(topic_arn: str, queue_arn: str) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }

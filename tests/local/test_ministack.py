"""Where MiniStack does as AWS does, so that our tests may rely on it, and where it does not.

When a newer MiniStack fails one of these, it has come nearer to AWS (or gone farther): say so here.
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

import json
import time

import pytest

from tests.local.conftest import create_function

# What a handler may answer for a batch of "good" and "bad".
VARIANTS = """
import time

VARIANTS = {
    "ok": lambda good, bad: {"batchItemFailures": []},
    "null response": lambda good, bad: None,
    "partial": lambda good, bad: failed(bad),
    "empty id": lambda good, bad: failed(""),
    "null id": lambda good, bad: failed(None),
    "unknown id": lambda good, bad: failed("00000000-0000-0000-0000-000000000000"),
    "wrong key": lambda good, bad: {"batchItemFailures": [{"messageId": bad}]},
    "string": lambda good, bad: "done",
    "exception": lambda good, bad: 1 / 0,
    "timeout": lambda good, bad: time.sleep(60),
}

def failed(message_id):
    return {"batchItemFailures": [{"itemIdentifier": message_id}]}

def handler(event, context):
    ids = {record["body"]: record["messageId"] for record in event["Records"]}
    variant = event["Records"][0]["eventSourceARN"].rpartition(":")[2].replace("-", " ")
    return VARIANTS[variant](ids["good"], ids["bad"])
"""

# How many of the two come back: on AWS, in MiniStack.
OUTCOMES = {
    "ok": (0, 0),
    "null response": (0, 0),
    "partial": (1, 1),
    "exception": (2, 2),
    "timeout": (2, 2),
    # MiniStack deletes the whole batch where AWS returns it, so that a test could not see a worker
    # that answers so. What ours answers is tested without a queue.
    "empty id": (2, 0),
    "null id": (2, 0),
    "unknown id": (2, 0),
    "wrong key": (2, 0),
    "string": (2, 0),
}


@pytest.fixture(scope="module")
def came_back(aws):
    """How many messages each variant left in its queue, all variants at once."""
    create_function(aws, "variants", VARIANTS, timeout_seconds=1)
    sqs, functions = aws.client("sqs"), aws.client("lambda")
    queues = {variant: create_queue(sqs, variant.replace(" ", "-")) for variant in OUTCOMES}
    mappings = []
    for queue in queues.values():
        entries = [{"Id": body, "MessageBody": body} for body in ("good", "bad")]
        sqs.send_message_batch(QueueUrl=queue, Entries=entries)
        mapping = functions.create_event_source_mapping(
            EventSourceArn=arn(sqs, queue),
            FunctionName="variants",
            FunctionResponseTypes=["ReportBatchItemFailures"],
        )
        mappings.append(mapping["UUID"])
    for mapping in mappings:
        await_result(functions, mapping)
    return {variant: sum(depths(sqs, queue)) for variant, queue in queues.items()}


@pytest.mark.parametrize("variant", OUTCOMES)
def test_what_the_event_source_does_with_a_handlers_answer(came_back, variant):
    _on_aws, in_ministack = OUTCOMES[variant]

    assert came_back[variant] == in_ministack


def test_a_message_past_its_limit_moves_only_when_it_is_received_once_more(aws):
    sqs = aws.client("sqs")
    dead = create_queue(sqs, "limit-dlq")
    policy = {"deadLetterTargetArn": arn(sqs, dead), "maxReceiveCount": 2}
    queue = create_queue(sqs, "limit", RedrivePolicy=json.dumps(policy))
    sqs.send_message(QueueUrl=queue, MessageBody="hello")

    for _ in range(2):
        assert sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0)["Messages"]
    assert depths(sqs, dead) == [0, 0]

    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    assert depths(sqs, dead) == [1, 0]


def test_a_fifo_duplicate_is_dropped_even_after_the_first_was_deleted(aws):
    sqs = aws.client("sqs")
    queue = create_queue(sqs, "order.fifo", FifoQueue="true")

    def send():
        sqs.send_message(
            QueueUrl=queue, MessageBody="hello", MessageGroupId="g", MessageDeduplicationId="d"
        )

    send()
    (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    send()

    assert depths(sqs, queue) == [0, 0]


def create_queue(sqs, name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def arn(sqs, queue):
    return _attributes(sqs, queue, "QueueArn")["QueueArn"]


def depths(sqs, queue):
    """Visible and hidden messages."""
    names = "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"
    return [int(count) for count in _attributes(sqs, queue, *names).values()]


def _attributes(sqs, queue, *names):
    return sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]


def await_result(functions, mapping):
    """Until a batch was processed; its messages are then gone, or hidden for half a minute."""
    deadline = time.monotonic() + 30
    while True:
        result = functions.get_event_source_mapping(UUID=mapping)["LastProcessingResult"]
        if result.startswith(("OK", "FAILED")):
            return
        assert time.monotonic() < deadline, result
        time.sleep(0.05)

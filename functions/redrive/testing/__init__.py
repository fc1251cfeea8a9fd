"""Test doubles for code that publishes or runs jobs: no AWS, no sockets, no sleeping.

    clock = ManualClock()
    dead = InMemoryQueue("send_email-dead", clock=clock)
    queue = InMemoryQueue("send_email", dead_letter_queue=dead, max_receive_count=2, clock=clock)
    sqs = InMemorySqs(queue, dead)

    sqs.send_message(QueueUrl=queue.url, MessageBody='{"email_id": "receipt:ord_1"}')
    delivery = deliver(worker, queue)     # receives, invokes, deletes, as Lambda's poller does
    assert len(queue) == 0

    clock.advance(timedelta(seconds=30))  # whatever was not deleted is visible again

`InMemorySqs` speaks boto3's SQS client and refuses what AWS refuses, where emulators are lenient:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

from redrive.testing.poller import Delivery, FakeContext, deliver, lambda_context, lambda_event
from redrive.testing.queue import InMemoryQueue, ManualClock, aws_error
from redrive.testing.sqs import InMemorySqs

__all__ = [
    "Delivery",
    "FakeContext",
    "InMemoryQueue",
    "InMemorySqs",
    "ManualClock",
    "aws_error",
    "deliver",
    "lambda_context",
    "lambda_event",
]

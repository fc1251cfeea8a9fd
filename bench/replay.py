"""Dead letters sent again: Redrive's replay beside a sequential loop and `replay-aws-dlq`.

All three on one core against one endpoint that takes 10 ms a call, timed by that endpoint from the
first call to the last answer: the start of Python and Node, and the making of clients, are not in
it. A long poll of the empty queue takes 10 ms like any call.
"""

import contextlib
import hashlib
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from bench.endpoint import Endpoint
from redrive import clients, limits
from redrive.message import Cause, Message, iso_time
from redrive.testing import lambda_context
from redrive.worker.dead_letters import attributes_with, envelope_of
from replay.event import ACTIONS
from replay.function import ReplayFunction
from replay.operation import THREADS
from replay.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

DELAY_SECONDS = 0.010
ROUNDS = 5
PEER_ROUNDS = 3
MESSAGES = 20_000
# The others are as fast with few as with many.
LOOP_MESSAGES = 500
PEER_MESSAGES = 100

PEER = Path(__file__).parents[1] / ".build" / "bench" / "node_modules" / "replay-aws-dlq"

_JOB = "send_email"
_SENT_AT = 1_700_000_000_000


@dataclass(frozen=True)
class ReplayResult:
    """Medians in messages a second; calls and CPU (ms) a message of ours.

    `peer` is None where the npm package is not installed, `bound` what the calls alone would allow.
    """

    ours: float
    bound: float
    loop: float
    peer: float | None
    calls: Mapping[str, float]
    cpu: float


def measure(endpoint: Endpoint) -> ReplayResult:
    """All ways in turn, several rounds."""
    queue_url, dead_letter_queue_url = f"{endpoint.url}/1/email", f"{endpoint.url}/1/email-dead"
    endpoint.set_delay(DELAY_SECONDS)
    endpoint.set_parameter(_parameter(queue_url, dead_letter_queue_url))
    letters = [_letter(number, queue_url) for number in range(MESSAGES)]
    replay = _redrive()
    sqs = boto3.client("sqs", endpoint_url=endpoint.url, config=clients.config())

    def ours() -> None:
        replay()

    def loop() -> None:
        _loop(sqs, dead_letter_queue_url, queue_url)

    def peer() -> None:
        _replay_aws_dlq(dead_letter_queue_url, queue_url)

    def rate(way: Callable[[], None], count: int) -> float:
        endpoint.put_messages(letters[:count])
        endpoint.take_calls()
        endpoint.take_seconds()
        way()
        return count / endpoint.take_seconds()

    rate(ours, LOOP_MESSAGES)  # connections, imports
    rate(loop, LOOP_MESSAGES)
    our_rates, loop_rates, peer_rates, cpu = [], [], [], 0.0
    calls: Counter[str] = Counter()
    for round_ in range(ROUNDS):
        before = time.process_time()
        our_rates.append(rate(ours, MESSAGES))
        cpu += time.process_time() - before
        calls += endpoint.take_calls()
        loop_rates.append(rate(loop, LOOP_MESSAGES))
        if PEER.exists() and round_ < PEER_ROUNDS:
            peer_rates.append(rate(peer, PEER_MESSAGES))
    calls_a_message = {name: count / ROUNDS / MESSAGES for name, count in calls.items()}
    return ReplayResult(
        ours=statistics.median(our_rates),
        bound=THREADS / DELAY_SECONDS / sum(calls_a_message.values()),
        loop=statistics.median(loop_rates),
        peer=statistics.median(peer_rates) if peer_rates else None,
        calls=calls_a_message,
        cpu=cpu * 1000 / ROUNDS / MESSAGES,
    )


def _redrive() -> Callable[[], None]:
    """The deployed function, which makes its own clients: AWS_ENDPOINT_URL tells them where."""
    settings = Settings(
        stage="bench",
        jobs=(_JOB,),
        idempotency_table="idempotency",
        jobs_table="jobs",
        lease_seconds=60,
    )
    # As long as it takes, however slow the machine: a hop is not what is measured.
    function = ReplayFunction(ACTIONS, settings=settings, seconds_to_work=600)

    def replay() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            event = {"job": _JOB, "action": "replay", "reason": "bench"}
            answer = function(event, lambda_context())
        if not answer["complete"] or answer["failed"]:
            raise RuntimeError(f"replay: {answer['incomplete']}, {answer['errors'][:1]}")

    return replay


def _loop(sqs: "SQSClient", source: str, destination: str) -> None:
    """The script that everybody writes: ten at a time, one call after the other."""
    while True:
        messages = sqs.receive_message(
            QueueUrl=source,
            MaxNumberOfMessages=limits.BATCH_ENTRIES,
            WaitTimeSeconds=1,
            MessageAttributeNames=["All"],
        ).get("Messages")
        if not messages:
            return
        sent: list[Any] = [
            {
                "Id": str(place),
                "MessageBody": one["Body"],
                "MessageAttributes": one["MessageAttributes"],
            }
            for place, one in enumerate(messages)
        ]
        sqs.send_message_batch(QueueUrl=destination, Entries=sent)
        deleted: list[Any] = [
            {"Id": str(place), "ReceiptHandle": one["ReceiptHandle"]}
            for place, one in enumerate(messages)
        ]
        sqs.delete_message_batch(QueueUrl=source, Entries=deleted)


def _replay_aws_dlq(source: str, destination: str) -> None:
    # Its SDK takes the endpoint from the queues' URLs.
    subprocess.run(
        [Path(sys.prefix) / "bin" / "node", PEER / "cli.js", source, destination],
        env={**os.environ, "AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )


# --- what is replayed -----------------------------------------------------------------------------


def _parameter(queue_url: str, dead_letter_queue_url: str) -> str:
    """As the stack writes it: see `redrive.discovery`."""
    return json.dumps(
        {
            "version": 1,
            "job": _JOB,
            "key": "id",
            "queues": {"normal": queue_url},
            "dead_letter_queue": dead_letter_queue_url,
            "fifo": False,
            "limits": {"max_message_bytes": limits.MESSAGE_BYTES, "max_replays": 3},
        }
    )


def _letter(number: int, queue_url: str) -> bytes:
    """One message of ReceiveMessage, with the attribute that a worker writes."""
    key = f"receipt:ord_{number}"
    body = json.dumps(_payload(number, key))
    message = Message(
        id=_uuid(1, number), receipt_handle="", body=body, receives=12, sent_at=_SENT_AT
    )
    cause = Cause(
        type="EmailRejected",
        message="BadRequestException: Email address is not verified.",
        fingerprint="5d1f0a3c",
        attempts=12,
        receives=12,
        failed_at=iso_time(_SENT_AT + 3_600_000),
        function="redrive-bench-send-email",
        request_id=_uuid(2, number),
        log_stream="2023/11/14/[$LATEST]0123456789abcdef0123456789abcdef",
    )
    envelope = envelope_of(message, f"{_JOB}:{key}", queue_url, cause)
    received = {
        "MessageId": _uuid(3, number),
        "ReceiptHandle": f"{number:0250x}",
        "MD5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "Body": body,
        "Attributes": {
            "SenderId": "AROAEXAMPLEEXAMPLE123:redrive-bench-send-email",
            "SentTimestamp": str(_SENT_AT + 3_600_000),
            "ApproximateReceiveCount": "1",
            "ApproximateFirstReceiveTimestamp": str(_SENT_AT + 7_200_000),
        },
        "MessageAttributes": attributes_with(message, envelope),
    }
    return json.dumps(received).encode()


def _payload(number: int, key: str) -> dict[str, Any]:
    """About 500 bytes."""
    return {
        "id": key,
        "to": f"customer-{number}@example.com",
        "template": "receipt",
        "data": {
            "order": f"ord_{number}",
            "total": "12.00 EUR",
            "lines": [{"sku": f"sku-{line}", "count": line, "price": 4.5} for line in range(3)],
            "note": "x" * 240,
        },
    }


def _uuid(kind: int, number: int) -> str:
    return f"{kind:08x}-0000-4000-8000-{number:012x}"

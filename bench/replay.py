"""Dead letters sent again: Redrive's replay beside a sequential loop and `replay-aws-dlq`.

All three on one core against one endpoint that takes 10 ms a call, timed by that endpoint from the
first call to the last answer: the start of Python and Node, and the making of clients, are not in
it. A long poll of the empty queue takes 10 ms like any call. `by_boto3` is what boto3 takes on the
same core for the calls that ours needs, from as many threads, with nothing around; ours makes them
without botocore (see `replay.direct`).
"""

import contextlib
import gc
import hashlib
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from bench.endpoint import Endpoint
from redrive import clients, limits
from redrive.message import Cause, Message, iso_time
from redrive.testing import lambda_context
from redrive.worker.dead_letters import attributes_with, envelope_of
from replay.event import ACTIONS
from replay.function import COLLECT_AFTER, ReplayFunction
from replay.scan import THREADS
from replay.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

DELAY_SECONDS = 0.010
ROUNDS = 5
PEER_ROUNDS = 3
MESSAGES = 20_000
# The others are as fast with few as with many.
BOTO3_MESSAGES = 5_000
LOOP_MESSAGES = 500
PEER_MESSAGES = 100

PEER = Path(__file__).parents[1] / ".build" / "bench" / "node_modules" / "replay-aws-dlq"

_JOB = "send_email"
_SENT_AT = 1_700_000_000_000


@dataclass(frozen=True)
class ReplayResult:
    """Medians in messages a second; calls and CPU (ms) a message of ours.

    `peer` is None where the npm package is not installed.
    """

    ours: float
    by_boto3: float
    loop: float
    peer: float | None
    calls: Mapping[str, float]
    cpu: float


def measure(endpoint: Endpoint) -> ReplayResult:
    """All ways in turn, several rounds."""
    source, destination = f"{endpoint.url}/1/email-dead", f"{endpoint.url}/1/email"
    endpoint.set_delay(DELAY_SECONDS)
    endpoint.set_parameter(_parameter(source, destination))
    endpoint.set_row(_ROW)
    letters = [_letter(number, destination) for number in range(MESSAGES)]
    config = clients.config(threads=THREADS)
    sqs = boto3.client("sqs", endpoint_url=endpoint.url, config=config)
    dynamodb = boto3.client("dynamodb", endpoint_url=endpoint.url, config=config)
    replay = _redrive()

    def rate(count: int, way: Callable[[], None]) -> float:
        endpoint.put_messages(letters[:count])
        endpoint.take_calls()
        endpoint.take_seconds()
        way()
        return count / endpoint.take_seconds()

    def loop() -> None:
        _loop(sqs, source, destination)

    def by_boto3() -> None:
        _by_boto3(sqs, dynamodb, source, destination)

    for way in (replay, by_boto3):  # connections, imports
        rate(LOOP_MESSAGES, way)
    ours, plain, loops, peers, cpu = [], [], [], [], 0.0
    calls: Counter[str] = Counter()
    for round_ in range(ROUNDS):
        before = time.process_time()
        with _as_in_the_lambda():
            ours.append(rate(MESSAGES, replay))
        cpu += time.process_time() - before
        calls += endpoint.take_calls()
        plain.append(rate(BOTO3_MESSAGES, by_boto3))
        loops.append(rate(LOOP_MESSAGES, loop))
        if PEER.exists() and round_ < PEER_ROUNDS:
            peers.append(rate(PEER_MESSAGES, lambda: _replay_aws_dlq(source, destination)))
    return ReplayResult(
        ours=statistics.median(ours),
        by_boto3=statistics.median(plain),
        loop=statistics.median(loops),
        peer=statistics.median(peers) if peers else None,
        calls={name: count / ROUNDS / MESSAGES for name, count in calls.items()},
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


@contextlib.contextmanager
def _as_in_the_lambda() -> Iterator[None]:
    """See `replay.handler`."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _loop(sqs: "SQSClient", source: str, destination: str) -> None:
    """The script that everybody writes: ten at a time, one call after the other."""
    while messages := _receive(sqs, source):
        _send(sqs, destination, messages)
        _delete(sqs, source, messages)


def _by_boto3(sqs: "SQSClient", dynamodb: "DynamoDBClient", source: str, destination: str) -> None:
    def work(_: int) -> None:
        while handful := [found for _ in range(5) if (found := _receive(sqs, source))]:
            dynamodb.batch_get_item(RequestItems=_keys(handful))
            for messages in handful:
                _send(sqs, destination, messages)
            for messages in handful:
                _delete(sqs, source, messages)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


def _receive(sqs: "SQSClient", source: str) -> "Sequence[MessageTypeDef]":
    return sqs.receive_message(
        QueueUrl=source,
        MaxNumberOfMessages=limits.BATCH_ENTRIES,
        WaitTimeSeconds=1,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
    ).get("Messages", [])


def _send(sqs: "SQSClient", destination: str, messages: "Sequence[MessageTypeDef]") -> None:
    entries: list[Any] = [
        {
            "Id": str(place),
            "MessageBody": one["Body"],
            "MessageAttributes": one["MessageAttributes"],
        }
        for place, one in enumerate(messages)
    ]
    sqs.send_message_batch(QueueUrl=destination, Entries=entries)


def _delete(sqs: "SQSClient", source: str, messages: "Sequence[MessageTypeDef]") -> None:
    entries: list[Any] = [
        {"Id": str(place), "ReceiptHandle": one["ReceiptHandle"]}
        for place, one in enumerate(messages)
    ]
    sqs.delete_message_batch(QueueUrl=source, Entries=entries)


def _keys(handful: "Sequence[Sequence[MessageTypeDef]]") -> dict[str, Any]:
    ids = [one["MessageId"] for messages in handful for one in messages]
    rows = [{"id": {"S": f"{_JOB}:{id_}"}, "record": {"S": f"message#{id_}"}} for id_ in ids]
    records = [{"id": {"S": f"{_JOB}#{id_}"}} for id_ in ids]
    return {
        "jobs": {"Keys": rows, "ConsistentRead": True},
        "idempotency": {"Keys": records, "ConsistentRead": True},
    }


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


def _parameter(source: str, destination: str) -> str:
    """As the stack writes it: see `redrive.discovery`."""
    return json.dumps(
        {
            "version": 1,
            "job": _JOB,
            "key": "id",
            "queues": {"normal": destination},
            "dead_letter_queue": source,
            "fifo": False,
            "limits": {"max_message_bytes": limits.MESSAGE_BYTES, "max_replays": 3},
        }
    )


_CAUSE = Cause(
    type="EmailRejected",
    message="BadRequestException: Email address is not verified.",
    fingerprint="5d1f0a3c",
    attempts=12,
    receives=12,
    failed_at=iso_time(_SENT_AT + 3_600_000),
    function="redrive-bench-send-email",
    request_id="00000002-0000-4000-8000-000000000000",
    log_stream="2023/11/14/[$LATEST]0123456789abcdef0123456789abcdef",
)
# As the worker wrote it in the jobs table.
_ROW = {
    "attempts": {"N": "12"},
    "dead": {"BOOL": True},
    "replays": {"N": "0"},
    "cause": {"S": json.dumps(asdict(_CAUSE))},
    "expiration": {"N": "1800000000"},
}


def _letter(number: int, destination: str) -> bytes:
    """One message of ReceiveMessage, with the attribute that a worker writes."""
    key = f"receipt:ord_{number}"
    body = json.dumps(_payload(number, key))
    message = Message(
        id=_uuid(1, number), receipt_handle="", body=body, receives=12, sent_at=_SENT_AT
    )
    envelope = envelope_of(message, f"{_JOB}:{key}", destination, _CAUSE)
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

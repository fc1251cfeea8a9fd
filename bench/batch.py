"""A batch of ten idempotent jobs: Redrive's worker beside Powertools' batch processor.

Both run the same empty job under Powertools idempotency against one endpoint that takes 5 ms a
call. The floor is what two such calls take one after the other, by the same client, with nothing
around.
"""

import contextlib
import io
import itertools
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from bench.endpoint import Endpoint
from redrive import clients
from redrive.retry import RetryPolicy
from redrive.worker import Worker
from redrive.worker.outcome import Contract
from redrive.worker.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

DELAY_SECONDS = 0.005
ROUNDS = 15
_keys = itertools.count()

Handler = Callable[[dict[str, Any], Any], Any]


@dataclass(frozen=True)
class BatchResult:
    """Medians in milliseconds a batch; calls and CPU a job."""

    batch: int
    ours: float
    plain: float
    peer: float
    floor: float
    calls: Mapping[str, float]
    cpu: float

    @property
    def speedup(self) -> float:
        return self.peer / self.ours

    @property
    def over_floor(self) -> float:
        return self.ours / self.floor


class Context:
    """A Lambda context with all the time in the world."""

    function_name = "bench"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:000000000000:function:bench"
    aws_request_id = "bench"
    log_stream_name = "bench"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def measure(endpoint: Endpoint, batch: int) -> BatchResult:
    """All ways in turn, several rounds, each with jobs that were never seen before."""
    ours, peer = _redrive(endpoint.url, batch), _powertools(endpoint.url)
    plain = _redrive(endpoint.url, batch, group_commit=False)
    floor_client = boto3.client("dynamodb", endpoint_url=endpoint.url, config=clients.config())
    endpoint.set_delay(DELAY_SECONDS)
    for handler in (ours, plain, peer):  # connections, imports
        _time(handler, batch)
    _floor(floor_client)
    endpoint.take_calls()
    our_times, plain_times, peer_times, floors, cpu = [], [], [], [], 0.0
    calls: Counter[str] = Counter()
    for _ in range(ROUNDS):
        before = time.process_time()
        our_times.append(_time(ours, batch))
        cpu += time.process_time() - before
        calls += endpoint.take_calls()
        plain_times.append(_time(plain, batch))
        peer_times.append(_time(peer, batch))
        floors.append(_floor(floor_client))
        endpoint.take_calls()
    return BatchResult(
        batch=batch,
        ours=statistics.median(our_times),
        plain=statistics.median(plain_times),
        peer=statistics.median(peer_times),
        floor=statistics.median(floors),
        calls={name: count / ROUNDS / batch for name, count in calls.items()},
        cpu=cpu * 1000 / ROUNDS / batch,
    )


def _time(handler: Handler, batch: int) -> float:
    event = {"Records": [_record(next(_keys)) for _ in range(batch)]}
    with contextlib.redirect_stdout(io.StringIO()):
        start = time.perf_counter()
        handler(event, Context())
        return (time.perf_counter() - start) * 1000


def _record(number: int) -> dict[str, Any]:
    return {
        "messageId": f"message-{number}",
        "receiptHandle": f"receipt-{number}",
        "body": json.dumps({"id": number, "text": "x" * 500}),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1700000000000",
            "SenderId": "bench",
            "ApproximateFirstReceiveTimestamp": "1700000000000",
        },
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-west-1:000000000000:bench",
        "awsRegion": "eu-west-1",
    }


def _redrive(url: str, batch: int, *, group_commit: bool = True) -> Handler:
    settings = Settings(
        stage="bench",
        job="bench",
        key="id",
        queue_url=f"{url}/queue",
        dead_letter_queue_url=f"{url}/dead",
        idempotency_table="idempotency",
        jobs_table="jobs",
        lease_seconds=60,
        visibility_timeout_seconds=360,
        p99_seconds=1,
        max_kills=3,
        batch_concurrency=min(batch, 16),
        contract=Contract(
            retry=RetryPolicy(max_attempts=12, backoff_base=10, backoff_cap=900),
            timeout_seconds=60,
            retention_seconds=4 * 24 * 3600,
            max_receives=480,
        ),
    )
    config = clients.config(threads=settings.batch_concurrency)
    return Worker(
        lambda job: {"id": job.key},
        settings=settings,
        sqs=boto3.client("sqs", endpoint_url=url, config=config),
        dynamodb=boto3.client("dynamodb", endpoint_url=url, config=config),
        group_commit=group_commit,
    )


def _powertools(url: str) -> Handler:
    # As its documentation shows the two together: get the job, then an idempotent function.
    config = IdempotencyConfig(event_key_jmespath="id", raise_on_no_idempotency_key=True)
    layer = DynamoDBPersistenceLayer(
        table_name="idempotency", boto3_client=boto3.client("dynamodb", endpoint_url=url)
    )
    processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)

    @idempotent_function(  # type: ignore[untyped-decorator]
        data_keyword_argument="job", persistence_store=layer, config=config
    )
    def run(job: dict[str, Any]) -> dict[str, Any]:
        return {"id": job["id"]}

    def record_handler(record: Any) -> dict[str, Any]:
        return run(job=record.json_body)  # type: ignore[no-any-return]

    def handler(event: dict[str, Any], context: Any) -> Any:
        config.register_lambda_context(context)
        return process_partial_response(
            event=event, record_handler=record_handler, processor=processor, context=context
        )

    return handler


def _floor(client: "DynamoDBClient") -> float:
    start = time.perf_counter()
    for _ in range(2):
        client.put_item(TableName="idempotency", Item={"id": {"S": "floor"}})
    return (time.perf_counter() - start) * 1000

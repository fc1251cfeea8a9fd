"""Makes messages visible again, each after its own delay, in as few calls as SQS allows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive import limits

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_TRIES = 2  # SQS refuses single entries for a moment's trouble; later than that, the queue's own
# visibility timeout brings the message back


def change_visibility(
    sqs: "SQSClient", queue_url: str, delays: Sequence[tuple[str, int]]
) -> list[str]:
    """Sets the visibility timeout of each (receipt handle, seconds).

    Returns the codes of the entries that SQS still refused. Raises what boto3 raises.
    """
    refused: list[str] = []
    for start in range(0, len(delays), limits.BATCH_ENTRIES):
        refused += _change_chunk(sqs, queue_url, delays[start : start + limits.BATCH_ENTRIES])
    return refused


def _change_chunk(sqs: "SQSClient", queue_url: str, delays: Sequence[tuple[str, int]]) -> list[str]:
    codes: list[str] = []
    left = dict(enumerate(delays))
    for _ in range(_TRIES):
        response = sqs.change_message_visibility_batch(
            QueueUrl=queue_url,
            Entries=[
                {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
                for place, (handle, seconds) in left.items()
            ],
        )
        failed = response.get("Failed", [])
        codes = [entry["Code"] for entry in failed]
        # A sender's fault (the receipt has expired, the message is gone) stays one.
        left = {int(e["Id"]): left[int(e["Id"])] for e in failed if not e["SenderFault"]}
        if not left:
            break
    return codes

"""Sets the visibility timeouts of many messages in as few calls as SQS allows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive import limits

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_TRIES = 2  # SQS refuses single entries for a moment's trouble; later than that, the queue's own
# visibility timeout brings the message back


def change_visibility(
    sqs: "SQSClient", queue_url: str, delays: Sequence[tuple[str, int]]
) -> dict[str, str]:
    """Sets the visibility timeout of each (receipt handle, seconds).

    Returns, by receipt handle, the codes of those that SQS still refused. Raises what boto3 raises.
    """
    refused: dict[str, str] = {}
    for start in range(0, len(delays), limits.BATCH_ENTRIES):
        refused |= _change_chunk(sqs, queue_url, delays[start : start + limits.BATCH_ENTRIES])
    return refused


def _change_chunk(
    sqs: "SQSClient", queue_url: str, delays: Sequence[tuple[str, int]]
) -> dict[str, str]:
    refused: dict[str, str] = {}
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
        for place in left:
            refused.pop(delays[place][0], None)
        refused |= {delays[int(entry["Id"])][0]: entry["Code"] for entry in failed}
        # A sender's fault (the receipt has expired, the message is gone) stays one.
        left = {int(e["Id"]): left[int(e["Id"])] for e in failed if not e["SenderFault"]}
        if not left:
            break
    return refused

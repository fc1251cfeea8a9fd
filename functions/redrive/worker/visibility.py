"""Sets the visibility timeouts of many messages in as few calls as SQS allows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from redrive import aws_errors, limits

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

# SQS refuses single entries for a moment's trouble.
_TRIES: Final = 2


@dataclass(slots=True)
class Refused:
    """The messages whose timeout was not set: the code of each, by receipt handle.

    `lost` are no longer ours (the receipt has expired, the message is gone); `missed` still are.
    """

    lost: dict[str, str] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)

    @property
    def codes(self) -> list[str]:
        return [*self.lost.values(), *self.missed.values()]


def change_visibility(
    sqs: "SQSClient", queue_url: str, delays: Sequence[tuple[str, int]]
) -> Refused:
    """Sets the visibility timeout of each (receipt handle, seconds). Raises nothing."""
    refused = Refused()
    for start in range(0, len(delays), limits.BATCH_ENTRIES):
        _change_chunk(sqs, queue_url, delays[start : start + limits.BATCH_ENTRIES], refused)
    return refused


def _change_chunk(
    sqs: "SQSClient", queue_url: str, delays: Sequence[tuple[str, int]], refused: Refused
) -> None:
    missed: dict[str, str] = {}
    left = dict(delays)
    for _ in range(_TRIES):
        handles = list(left)
        try:
            response = sqs.change_message_visibility_batch(
                QueueUrl=queue_url,
                Entries=[
                    {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": left[handle]}
                    for place, handle in enumerate(handles)
                ],
            )
        except Exception as error:
            # Botocore has repeated it; the next chunk may fare better.
            missed = dict.fromkeys(handles, aws_errors.code(error))
            break
        missed = {}
        for failed in response.get("Failed", []):
            kind = refused.lost if failed["SenderFault"] else missed
            kind[handles[int(failed["Id"])]] = failed["Code"]
        left = {handle: left[handle] for handle in missed}
        if not left:
            break
    refused.missed |= missed

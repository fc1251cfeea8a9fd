"""Sends a message to the dead-letter queue, with its cause."""

from typing import TYPE_CHECKING, Any

from redrive import limits
from redrive.message import ENVELOPE, Cause, Envelope, Message, iso_time, message_bytes
from redrive.worker.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class DeadLetters:
    """The dead-letter queue of one job."""

    def __init__(self, settings: Settings, sqs: "SQSClient") -> None:
        self._settings, self._sqs = settings, sqs

    def send(self, message: Message, job_id: str, cause: Cause) -> str | None:
        """Copies the message, byte for byte, with its attributes, group and trace header.

        Returns only after SQS confirmed the copy; until then the caller must not acknowledge the
        message. Raises what boto3 raises. Returns the copy's message id where there was no room in
        it for its cause, so that the row can be kept under that id too.
        """
        envelope = envelope_of(message, job_id, self._settings.queue_url, cause)
        attributes = attributes_with(message, envelope)
        request: dict[str, Any] = {
            "QueueUrl": self._settings.dead_letter_queue_url,
            "MessageBody": message.body,
            "MessageAttributes": attributes,
        }
        if message.group_id is not None:
            request["MessageGroupId"] = message.group_id
        if self._settings.fifo:
            # Dead-lettered twice (a kill after the send) within five minutes, it arrives once.
            request["MessageDeduplicationId"] = message.id
        if message.trace_header is not None:
            request["MessageSystemAttributes"] = {
                "AWSTraceHeader": {"DataType": "String", "StringValue": message.trace_header}
            }
        copy_id = self._sqs.send_message(**request)["MessageId"]
        return copy_id if attributes is message.attributes else None


def envelope_of(message: Message, job_id: str, queue_url: str, cause: Cause) -> Envelope:
    """What the dead letter says of itself: who it was first, how often replayed, and why it
    died.
    """
    before = message.envelope or Envelope()
    return Envelope(
        id=job_id,
        message_id=message.id,
        queue=queue_url,
        # A replayed message is a new one to SQS; the first send is the one that people ask for.
        sent_at=before.sent_at if before.replays and before.sent_at else iso_time(message.sent_at),
        expires_at=before.expires_at,
        replays=before.replays,
        force=before.force,
        cause=cause,
        metadata=before.metadata,
    )


def attributes_with(message: Message, envelope: Envelope) -> dict[str, Any]:
    """The message's own attributes, and `redrive` where there is room for it.

    There is none beside ten attributes, where it would pass the size limit, or where the name is
    taken by something that is not ours: then the row in the jobs table alone tells the cause.
    """
    own = {name: value for name, value in message.attributes.items() if name != ENVELOPE}
    if ENVELOPE in message.attributes and message.envelope is None:
        return message.attributes
    try:
        ours = {ENVELOPE: {"DataType": "String", "StringValue": envelope.render()}}
    except ValueError:
        return message.attributes
    fits = (
        len(own) < limits.ATTRIBUTES
        and message_bytes(message.body, own | ours) <= limits.MESSAGE_BYTES
    )
    return own | ours if fits else message.attributes

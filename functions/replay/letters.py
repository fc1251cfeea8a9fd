"""A dead letter: a message of a dead-letter queue, and all that is known of why it is there."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from redrive.discovery import Destination
from redrive.errors import UnusablePayload
from redrive.message import (
    Envelope,
    Message,
    Payload,
    iso_time,
    job_id,
    read_payload,
    read_time,
    render_key,
)
from redrive.worker.idempotency import record_id
from redrive.worker.jobs_table import Asked, History

MOVED_BY_SQS: Final = "MovedBySQS"
"""SQS moved it, since it was received too often; no worker said why."""
UNKNOWN: Final = "Unknown"
"""Somebody else sent it there."""

_LONGEST_ID: Final = 100
_CLOCKS_DIFFER_SECONDS: Final = 2
_FORCE_NUMBERS: Final = 2**31


class _Message(Message):
    """Its `redrive` attribute is read once, though its letter and its new copy both ask for it."""

    @cached_property
    def envelope(self) -> Envelope | None:
        return super().envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as the scan has it. `source` is the queue's name that SQS moved it from."""

    message: Message
    sequence: str
    source: str | None

    @classmethod
    def read(cls, received: Mapping[str, Any]) -> "Received":
        """Reads one message of ReceiveMessage."""
        system = received["Attributes"]
        arn = system.get("DeadLetterQueueSourceArn")
        return cls(
            message=_Message.from_received(received),
            sequence=system.get("SequenceNumber", ""),
            source=arn.rpartition(":")[2] if arn else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Times are milliseconds since the epoch, None where nothing tells them.

    `original_id` is the message's id when it died, and `queue_url` where it died. `force` is that
    of the run that it died in, or of the one that it is sent again for.
    """

    message: Message
    sequence: str
    original_id: str
    body_hash: int
    queue_url: str
    payload: Payload
    key: str
    job_id: str
    force: int
    envelope: Envelope
    cause: str
    fingerprint: str | None
    attempts: int
    replays: int
    sent_at: float | None
    failed_at: float | None
    succeeded: bool = False

    @property
    def run_key(self) -> str:
        """The idempotency key of its run, as `Job.run_key` makes it."""
        return f"{self.key}#force{self.force}" if self.force else self.key

    @property
    def names(self) -> set[str]:
        """What an operator may call it by."""
        return {self.key, self.job_id, self.original_id, self.message.id}

    @property
    def copy_of(self) -> tuple[str, int, int]:
        """Equal for two copies of one death: its worker was killed after the first was sent."""
        return self.original_id, self.replays, self.body_hash


def asked_about(received: Received, destination: Destination) -> tuple[DeadLetter, Asked]:
    """The letter by what it says itself, and what to ask the tables about it."""
    message = received.message
    envelope = message.envelope or Envelope()
    ours = envelope.cause is not None
    original_id = (ours and envelope.message_id) or message.id
    if len(original_id) > _LONGEST_ID:
        original_id = message.id  # it is none of SQS's
    payload, key = _open(message, destination, original_id)
    cause = envelope.cause
    letter = DeadLetter(
        message=message,
        sequence=received.sequence,
        original_id=original_id,
        body_hash=hash(message.body),
        queue_url=_origin(received, envelope, destination),
        payload=payload,
        key=key,
        job_id=job_id(destination.job, key),
        force=envelope.force,
        envelope=envelope,
        cause=cause.type if cause else MOVED_BY_SQS if received.source else UNKNOWN,
        fingerprint=cause.fingerprint if cause else None,
        attempts=cause.attempts if cause else 0,
        replays=envelope.replays,
        sent_at=_sent_at(received, envelope, destination),
        failed_at=_time(cause.failed_at) if cause else None,
    )
    record = record_id(destination.job, letter.run_key)
    return letter, Asked(letter.job_id, original_id, record)


def with_history(letter: DeadLetter, history: History) -> DeadLetter:
    """The letter as the tables know it: where both say something, the tables decide."""
    # What both say alike needs no copy of the letter.
    known: dict[str, Any] = {}
    if history.succeeded:
        known["succeeded"] = True
    if history.replays is not None and history.replays != letter.replays:
        known["replays"] = history.replays
    cause = history.cause
    if history.dead and cause and cause != letter.envelope.cause:
        known |= {
            "cause": cause.type,
            "fingerprint": cause.fingerprint,
            "attempts": cause.attempts,
            "failed_at": _time(cause.failed_at),
        }
    elif letter.cause == MOVED_BY_SQS:
        known["attempts"] = history.attempts
    return replace(letter, **known) if known else letter


def without_body(letter: DeadLetter) -> DeadLetter:
    """For keeping: a queue may hold more than the memory."""
    return replace(letter, message=replace(letter.message, body="", attributes={}), payload={})


def _open(message: Message, destination: Destination, original_id: str) -> tuple[Payload, str]:
    """The payload and the key; as in the worker, what has no key goes by its message id."""
    payload: Payload = {}
    try:
        payload = read_payload(message.body)
        return payload, render_key(payload, destination.key)
    except UnusablePayload:
        return payload, original_id


def _origin(received: Received, envelope: Envelope, destination: Destination) -> str:
    if envelope.queue in destination.queue_urls:
        return str(envelope.queue)
    for url in destination.queue_urls:
        if url.rpartition("/")[2] == received.source:
            return url
    return destination.queue_url


def _sent_at(received: Received, envelope: Envelope, destination: Destination) -> float | None:
    if envelope.sent_at and (envelope.cause or envelope.replays):
        return _time(envelope.sent_at)
    if received.source and destination.fifo:
        return None  # a FIFO queue's clock starts anew when SQS moves a message
    return float(received.message.sent_at)


def _time(text: str) -> float | None:
    """None for what cannot be the time of a letter, which anybody may have sent."""
    try:
        moment = read_time(text)
    except (ValueError, OverflowError):
        return None
    return moment if 0 <= moment < (time.time() + _CLOCKS_DIFFER_SECONDS) * 1000 else None


def forced(letter: DeadLetter) -> DeadLetter:
    """The letter under the number of its forced run: its own, and no other letter's.

    Sent twice, after a kill, it is one run; another letter of the same job is another one.
    """
    text = f"{letter.original_id}:{letter.replays}:{letter.force}"
    number = int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8])
    return replace(letter, force=1 + number % _FORCE_NUMBERS)


def replayed(letter: DeadLetter) -> Envelope:
    """What the message says of itself when it is sent again."""
    return replace(
        letter.envelope,
        id=letter.job_id,
        message_id=letter.original_id,
        queue=letter.queue_url,
        sent_at=None if letter.sent_at is None else iso_time(letter.sent_at),
        replays=letter.replays + 1,
        force=letter.force,
        cause=None,
    )


def in_order(letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """The oldest of each FIFO group first."""
    return sorted(letters, key=lambda letter: int(letter.sequence or 0))


def deduplication_id(letter: DeadLetter) -> str:
    """Another one for each replay, or FIFO would drop it; the same when one is repeated."""
    text = f"{letter.original_id}:{letter.replays + 1}:{letter.force}:{letter.message.body}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

"""The messages of one batch as jobs: which there are, and which of them must wait for which."""

from collections.abc import Iterable
from dataclasses import dataclass

from redrive.errors import UnusablePayload
from redrive.message import (
    Message,
    Payload,
    is_control_message,
    job_id,
    read_payload,
    render_key,
)
from redrive.worker.job import Job, LambdaContext
from redrive.worker.outcome import ControlMessage, Decision, Failed, Happening
from redrive.worker.settings import Settings


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One message, the job in it, and what becomes of both. `milliseconds` is what the job took.

    What happened may be known before any run: a message that holds no job has its `happening` from
    the start.
    """

    message: Message
    job: Job
    happening: Happening | None = None
    decision: Decision | None = None
    milliseconds: float | None = None

    @property
    def job_id(self) -> str:
        return self.job.id

    @property
    def attempt(self) -> int:
        return self.job.attempt


def open_message(message: Message, settings: Settings, context: LambdaContext) -> Delivery:
    """Finds the job in a message. Raises nothing: an unusable payload is a failure of its job."""
    payload: Payload = {}
    happening: Happening | None = None
    key = message.id  # until a key is found: a job id is never empty
    try:
        payload = read_payload(message.body)
        if is_control_message(payload):
            happening = ControlMessage()
        else:
            key = render_key(payload, settings.key)
    except UnusablePayload as error:
        happening = Failed(error)
    envelope = message.envelope
    job = Job(
        id=job_id(settings.job, key),
        key=key,
        payload=payload,
        attempt=message.receives,
        message_id=message.id,
        context=context,
        force=envelope.force if envelope else 0,
    )
    return Delivery(message=message, job=job, happening=happening)


def lanes(deliveries: Iterable[Delivery], *, fifo: bool) -> list[list[Delivery]]:
    """The deliveries that run one after the other, each lane beside the others.

    A FIFO group is one lane. On a standard queue (where a group means fairness, not order) a lane
    is one job: a second message of the same job finds it done, instead of finding it running.
    """
    by_lane: dict[str | None, list[Delivery]] = {}
    for delivery in deliveries:
        lane = delivery.message.group_id if fifo else delivery.job_id
        by_lane.setdefault(lane, []).append(delivery)
    return list(by_lane.values())

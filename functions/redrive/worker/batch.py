"""The messages of one batch as jobs: which there are, and which of them must wait for which."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from redrive.errors import UnusablePayload
from redrive.message import (
    Cause,
    Message,
    Payload,
    is_control_message,
    job_id,
    read_payload,
    render_key,
)
from redrive.worker.job import Job, LambdaContext
from redrive.worker.jobs_table import History
from redrive.worker.outcome import (
    AlreadyDead,
    ControlMessage,
    Decision,
    Dying,
    Failed,
    Happening,
)
from redrive.worker.settings import Settings


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One message, the job in it, and what becomes of both. `milliseconds` is what the job took.

    What happened may be known before any run: a message that holds no job has its `happening` from
    the start. A delivery is `suspect` when the message's last run has not ended: it may have been
    killed by this very job; `kills` counts the runs that were. `last_cause` is why the attempt
    before failed.
    """

    message: Message
    job: Job
    happening: Happening | None = None
    decision: Decision | None = None
    milliseconds: float | None = None
    suspect: bool = False
    kills: int = 0
    forget_claim: Callable[[], None] | None = None
    cause: Cause | None = None
    last_cause: Cause | None = None

    @property
    def job_id(self) -> str:
        return self.job.id

    @property
    def attempt(self) -> int:
        return self.job.attempt

    def recall(self, history: History) -> None:
        """Takes up what came before this delivery."""
        self.job = replace(self.job, attempt=history.attempts + 1)
        self.last_cause = history.cause
        if history.dead:
            self.happening = AlreadyDead()
        elif history.dying:
            self.happening = Dying(history.dying)
        if history.unfinished_kills is not None:
            self.suspect, self.kills = True, history.unfinished_kills


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
        attempt=1,
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


def apart(all_lanes: Iterable[list[Delivery]]) -> tuple[list[list[Delivery]], list[list[Delivery]]]:
    """The lanes that may run beside each other, and those that must run alone, after them.

    A job that kills its process takes its neighbours with it, so whatever may have done so runs
    alone: the ones that have been caught at it least come first.
    """
    together = [lane for lane in all_lanes if not any(one.suspect for one in lane)]
    alone = [lane for lane in all_lanes if any(one.suspect for one in lane)]
    return together, sorted(alone, key=lambda lane: max(one.kills for one in lane))

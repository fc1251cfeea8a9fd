"""How long one C call may hold the GIL before a batch loses its lease: a thread renews it."""

import ctypes
import time
from dataclasses import dataclass
from datetime import timedelta

from redrive.message import Message
from redrive.testing import InMemoryQueue, InMemorySqs, lambda_context, lambda_event
from redrive.worker.heartbeat import Heartbeat

LEASE_SECONDS = 2.0
LEASES_HELD = 3
FRACTIONS = (0.25, 0.5, 0.75, 1.0)

# A function of the C library, called without letting go of the GIL.
_usleep = ctypes.PyDLL(None).usleep


@dataclass(frozen=True)
class Held:
    """Calls that hold the GIL for this part of a lease; the longest time without a renewal."""

    fraction: float
    longest_leases: float

    @property
    def lost(self) -> bool:
        # A lease is whole seconds, rounded up, for SQS: the claim is what lapses first.
        return self.longest_leases > 1


class _Clocked(InMemorySqs):
    def __init__(self, queue: InMemoryQueue) -> None:
        super().__init__(queue)
        self.renewed = [time.monotonic()]

    def change_message_visibility_batch(self, **request: object) -> dict[str, object]:
        self.renewed.append(time.monotonic())
        return super().change_message_visibility_batch(**request)


def measure(fraction: float) -> Held:
    """Holds the GIL again and again, as a job would that is one C call after another."""
    queue = InMemoryQueue("bench", visibility_timeout=timedelta(minutes=6))
    queue.send({"MessageBody": "{}"})
    event = lambda_event(queue.receive(), queue)
    messages = [Message.from_record(record) for record in event["Records"]]
    sqs = _Clocked(queue)
    beating = Heartbeat(
        sqs,  # type: ignore[arg-type]
        queue.url,
        messages,
        lambda_context(),
        lease_seconds=LEASE_SECONDS,
        on_trouble=lambda *_: None,
    )
    with beating:
        until = time.monotonic() + LEASES_HELD * LEASE_SECONDS
        while time.monotonic() < until:
            _usleep(int(fraction * LEASE_SECONDS * 1_000_000))
    gaps = [after - before for before, after in zip(sqs.renewed, sqs.renewed[1:], strict=False)]
    return Held(fraction, max(gaps) / LEASE_SECONDS)

"""What happened to a message, and what is done about it: the delivery contract as one pure
function.

The rest of the worker only finds out what happened and carries out what `decide` says.
"""

import math
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

from redrive.errors import ContinueLater, PermanentError, RetryLater
from redrive.retry import RetryPolicy, backoff_seconds

# SQS counts its twelve hours from the receive: less Lambda's longest run (900 s) and batching
# window (300 s), which may have passed since. Asking for more than is left is an error, and no
# delay at all.
LONGEST_DELAY_SECONDS: Final = 43_200 - 900 - 300

# A message that was received but not run comes back soon, and ever later while that goes on.
HAND_BACK: Final = RetryPolicy(max_attempts=0, backoff_base=1, backoff_cap=900)


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The job returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The job had succeeded before; it was not run."""


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """A service's own test message; there is no job in it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The job raised, or its payload is unusable."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The message was received, but its job was not run now."""

    reason: str


Happening: TypeAlias = Succeeded | Duplicate | ControlMessage | Failed | NotStarted


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """SQS deletes the message."""


@dataclass(frozen=True, slots=True)
class Return:
    """The message becomes visible again after so many seconds."""

    seconds: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A copy goes to the dead-letter queue, with the error as its cause, then SQS deletes it."""

    error: BaseException


Decision: TypeAlias = Acknowledge | Return | DeadLetter


def decide(
    happening: Happening, *, attempt: int, receives: int, policy: RetryPolicy, random: Random
) -> Decision:
    """What is done with a message, after what happened to it on attempt number `attempt` (from
    1).
    """
    match happening:
        case Succeeded() | Duplicate() | ControlMessage():
            return Acknowledge()
        case NotStarted():
            return Return(backoff_seconds(HAND_BACK, receives, random))
        case Failed(PermanentError() as error):
            return DeadLetter(error)
        case Failed(ContinueLater()):
            return Return(0)
        case Failed(error) if attempt >= policy.max_attempts:
            return DeadLetter(error)
        case Failed(RetryLater() as later):
            return Return(min(math.ceil(later.seconds), LONGEST_DELAY_SECONDS))
        case Failed():
            return Return(backoff_seconds(policy, attempt, random))

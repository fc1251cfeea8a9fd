"""What happened to a message, and what is done about it: the delivery contract as one pure
function.

The rest of the worker only finds out what happened and carries out what `decide` says.
"""

import math
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

from redrive.errors import (
    ContinueLater,
    Expired,
    Expiring,
    Killed,
    PermanentError,
    ReceivedTooOften,
    RetryLater,
)
from redrive.message import Cause
from redrive.retry import RetryPolicy, backoff_seconds

# SQS counts its twelve hours from the receive: less Lambda's longest run (900 s) and batching
# window (300 s), which may have passed since. Asking for more than is left is an error, and no
# delay at all.
LONGEST_DELAY_SECONDS: Final = 43_200 - 900 - 300

# A message that was received but not run comes back soon, and ever later while that goes on.
HAND_BACK: Final = RetryPolicy(max_attempts=0, backoff_base=1, backoff_cap=900)

# A message is dead-lettered rather than come back this near to the moment when SQS deletes it: a
# standard queue's dead letter keeps its age, and one visibility timeout may be twelve hours.
LAST_SECONDS: Final = 12 * 3600


# --- what happened --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The job returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The job had succeeded before; it was not run."""


@dataclass(frozen=True, slots=True)
class AlreadyDead:
    """The message has its copy in the dead-letter queue; only its delete was lost."""


@dataclass(frozen=True, slots=True)
class Dying:
    """The job has failed for good before; only its dead letter was refused."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """A service's own test message; there is no job in it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The job raised, or its payload is unusable."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Busy:
    """Another run has the job, by a claim that ends in so many seconds unless it is renewed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The message was received, but its job was not run now."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The job ran, but another run has taken it over meanwhile: that one's result counts."""


Happening: TypeAlias = (
    Succeeded
    | Duplicate
    | AlreadyDead
    | Dying
    | ControlMessage
    | Failed
    | Busy
    | NotStarted
    | LeaseLost
)


# --- what is done ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """SQS deletes the message."""


@dataclass(frozen=True, slots=True)
class Return:
    """The message becomes visible again after so many seconds; `attempt`: one more has failed."""

    seconds: int
    attempt: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A copy goes to the dead-letter queue, with the error as its cause, then SQS deletes it.

    `attempts` are those that have failed.
    """

    error: BaseException | Cause
    attempts: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Neither acknowledged nor touched: it is another run's now."""


Decision: TypeAlias = Acknowledge | Return | DeadLetter | Leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a job's spec says of its messages. Times in seconds."""

    retry: RetryPolicy
    timeout_seconds: float
    retention_seconds: float
    max_receives: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One delivery: its attempt and receive, both counted from 1, and the message's age."""

    attempt: int
    receives: int
    age_seconds: float


def decide(happening: Happening, facts: Facts, contract: Contract, random: Random) -> Decision:
    """What is done with a message, after what happened to it."""
    return _before_sqs_does(_decide(happening, facts, contract, random), facts, contract)


def hand_back(facts: Facts, random: Random) -> Return:
    """What is done with a message that has no confirmed copy elsewhere, however old it is."""
    return Return(backoff_seconds(HAND_BACK, facts.receives, random))


def put_off(seconds: int, facts: Facts, contract: Contract) -> Decision:
    """What is done with a message that waits for an earlier one of its group."""
    return _before_sqs_does(Return(seconds), facts, contract)


def _decide(happening: Happening, facts: Facts, contract: Contract, random: Random) -> Decision:
    match happening:
        case Failed(error):
            return _after_failure(error, facts.attempt, contract.retry, random)
        case NotStarted():
            return Return(backoff_seconds(HAND_BACK, facts.receives, random))
        case Busy(seconds):
            # The claim may be renewed for as long as Lambda lets a function run.
            doubled = max(seconds, 1) * 2 ** min(facts.receives - 1, 16)
            return Return(math.ceil(min(doubled, contract.timeout_seconds)))
        case Dying(cause):
            return DeadLetter(cause, cause.attempts)
        case LeaseLost():
            return Leave()
        case Succeeded() | Duplicate() | AlreadyDead() | ControlMessage():
            return Acknowledge()


def _after_failure(
    error: BaseException, attempt: int, policy: RetryPolicy, random: Random
) -> Decision:
    match error:
        case Killed() | Expired():
            return DeadLetter(error, attempt - 1)
        case PermanentError():
            return DeadLetter(error, attempt)
        case ContinueLater():
            return Return(0)
        case _ if attempt >= policy.max_attempts:
            return DeadLetter(error, attempt)
        # A subclass may have left out our __init__: then it is an error like any other.
        case RetryLater(seconds=int() | float() as seconds) if seconds >= 0:
            return Return(math.ceil(min(seconds, LONGEST_DELAY_SECONDS)), attempt=True)
        case _:
            wait = backoff_seconds(policy, attempt, random)
            return Return(min(wait, LONGEST_DELAY_SECONDS), attempt=True)


def _before_sqs_does(decision: Decision, facts: Facts, contract: Contract) -> Decision:
    """Dead-letters, with a cause, what SQS would delete or move away without one."""
    if not isinstance(decision, Return):
        return decision
    attempts = facts.attempt if decision.attempt else facts.attempt - 1
    if facts.age_seconds + decision.seconds > contract.retention_seconds - LAST_SECONDS:
        age, retention = facts.age_seconds / 3600, contract.retention_seconds / 3600
        error = Expiring(f"it is {age:.0f} h old, and SQS deletes it after {retention:.0f} h")
        return DeadLetter(error, attempts)
    if facts.receives >= contract.max_receives:
        return DeadLetter(
            ReceivedTooOften(
                f"received {facts.receives} times, which is the queue's maxReceiveCount; attempts, "
                "continued jobs and messages that were handed back all count"
            ),
            attempts,
        )
    return decision

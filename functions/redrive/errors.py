"""The errors of Redrive. For a job, the type it raises is the decision.

    RedriveError
    ├── PermanentError          give up: dead-letter now, on this attempt
    │   ├── UnusablePayload     the body is no JSON object, or has no key
    │   ├── Killed              its runs ended without a word, too often
    │   ├── Expired             its publisher did not want it run so late
    │   ├── Expiring            it would come back when SQS is about to delete it
    │   └── ReceivedTooOften    it would come back when SQS is about to move it
    ├── RetryLater              try again after so many seconds; an attempt
    ├── ContinueLater           it made progress and saved it; come back at once, no attempt
    ├── DeadlineExceeded        the job ran out of time; an attempt, as any other error
    ├── InvalidMessage          the publisher refused the message before any call
    │   ├── MessageTooLarge
    │   ├── InvalidCharacters
    │   └── TooManyAttributes
    ├── PublishFailed           SQS did not take these messages; the error holds them
    ├── UnknownJob              nothing is deployed under this name
    ├── SettingsError           the function's environment is not what the stack sets
    └── NotAnSqsEvent           a worker was invoked with something else

Whatever else a job raises is retried with full jitter until its attempts are used up.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

from redrive import limits


class RedriveError(Exception):
    """The base of every error that Redrive raises or understands."""


class PermanentError(RedriveError):
    """No attempt can succeed: the job is dead-lettered at once, with this as its cause."""


class UnusablePayload(PermanentError):
    """The message is not a job: its body is no JSON object, or has no value at the job's key."""


class Killed(PermanentError):
    """The job's runs ended without a word: out of memory, out of time, a crash of the process.

    `request_id` and `log_stream` are the last one's.
    """

    def __init__(self, kills: int, request_id: str, log_stream: str) -> None:
        super().__init__(
            f"{kills} runs ended without a word: out of memory, out of time, or a crash of the "
            "process; request_id and log_stream are the last one's"
        )
        self.kills, self.request_id, self.log_stream = kills, request_id, log_stream

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), (self.kills, self.request_id, self.log_stream)


class Expired(PermanentError):
    """The message is older than its publisher's `expires_in`: the job is not run, or not again."""


class Expiring(PermanentError):
    """The message would have come back when SQS was about to delete it."""


class ReceivedTooOften(PermanentError):
    """SQS would have moved the message to the dead-letter queue next time, without a cause."""


class RetryLater(RedriveError):
    """Try again after `seconds`, instead of the usual backoff. It counts as an attempt.

    Raises ValueError outside 0 to 43,200 seconds, SQS's longest visibility timeout.
    """

    def __init__(self, seconds: float, message: str = "") -> None:
        if not 0 <= seconds <= limits.VISIBILITY_SECONDS:
            raise ValueError(
                f"RetryLater takes 0 to {limits.VISIBILITY_SECONDS} seconds (SQS's longest "
                f"visibility timeout), not {seconds}"
            )
        super().__init__(message or f"asked to be retried after {seconds:g} s")
        self.seconds = seconds

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        # Raised in a child process, it is pickled; by default that keeps the message alone.
        return type(self), (self.seconds, str(self))


class ContinueLater(RedriveError):
    """The job saved its progress and wants another run, now. It uses no attempt.

    It uses one of the queue's receives (`maxReceiveCount`, some hundred): a job of more steps than
    that publishes its next step instead.
    """


class DeadlineExceeded(RedriveError):
    """The job's time is up. Left uncaught it is a failed attempt."""


class InvalidMessage(RedriveError, ValueError):
    """A message that SQS would refuse, or no worker could run; nothing was sent for it."""


class MessageTooLarge(InvalidMessage):
    """Body and attributes together are over the queue's limit."""


class InvalidCharacters(InvalidMessage):
    """A text holds characters that SQS does not carry (it carries those of XML 1.0)."""


class TooManyAttributes(InvalidMessage):
    """More message attributes than SQS's ten, less the ones that Redrive needs."""


@dataclass(frozen=True, slots=True)
class Unsent:
    """One payload that was not published: its place in the input, and why."""

    index: int
    payload: Any
    code: str
    reason: str


class PublishFailed(RedriveError):
    """Some messages were not published; nothing is lost, they are all here.

    `sent` is how many SQS confirmed. `unsent` holds each refused payload with its index, code and
    reason. `remaining` yields the rest of the input, which was not tried because the failure would
    have met every message (no permission, no such queue). `payloads()` is both, to publish again.
    """

    def __init__(self, sent: int, unsent: Sequence[Unsent], remaining: Iterable[Any] = ()) -> None:
        first = unsent[0]
        super().__init__(
            f"{len(unsent)} not published, {sent} published; "
            f"the first, at index {first.index}: {first.code}: {first.reason}"
        )
        self.sent = sent
        self.unsent = tuple(unsent)
        self.remaining = remaining

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), (self.sent, self.unsent, list(self.remaining))

    def payloads(self) -> Iterator[Any]:
        """The payloads that were not published, in the order of the input."""
        return chain((one.payload for one in self.unsent), self.remaining)


class UnknownJob(RedriveError, LookupError):
    """No job of this name is deployed in this stage."""


class SettingsError(RedriveError):
    """What the stack sets (a variable, an SSM parameter) is missing, or not as it sets it."""


class NotAnSqsEvent(RedriveError, TypeError):
    """A worker was invoked with an event that does not come from SQS."""

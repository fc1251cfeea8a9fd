"""Publishes jobs: refuses what no worker could run before any call, and loses no payload.

Three parts: where a job's messages go (`Destination`), what a message is made of (`compose`), and
sending many of them (`_BulkSend`). Needs boto3 alone; never imports `redrive.worker`.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from random import Random
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar
from uuid import uuid4

import boto3
from botocore import exceptions as boto_errors
from botocore.exceptions import ClientError

from redrive import clients, limits
from redrive.errors import (
    InvalidCharacters,
    InvalidMessage,
    MessageTooLarge,
    PublishFailed,
    SettingsError,
    TooManyAttributes,
    UnknownJob,
    Unsent,
    UnusablePayload,
)
from redrive.message import (
    ENVELOPE,
    Attributes,
    compile_key,
    is_control_message,
    job_id,
    message_bytes,
    read_payload,
    render_key,
)

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

T = TypeVar("T")

AttributeValue: TypeAlias = str | int | float | bytes
PerPayload: TypeAlias = T | Callable[[Any], T]
"""One value for all messages, or a function that finds it in the payload."""

OWN_ATTRIBUTES: Final = limits.ATTRIBUTES - 3
"""A publisher's share of SQS's ten: `redrive`, a large payload's pointer and a spare are kept."""

_PARAMETER_VERSION: Final = 1

# More threads than this, sharing one publisher, gain nothing on one core.
_THREADS: Final = 16

# The pauses, each drawn from 0 to this, before SQS is asked again to take what it refused for a
# trouble of its own. Each call is repeated by botocore too.
_PAUSES_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6)


class Publisher:
    """Publishes the jobs of one stage; threads may share it.

        publisher = Publisher()
        publisher.publish("send_email", {"email_id": "receipt:ord_1", "to": "ada@example.com"})

    `stage` is the environment's REDRIVE_STAGE unless given. Nothing is read or connected before the
    first job. What the stack says of a job is read once, from the SSM parameter
    `/redrive/<stage>/<job>`: the caller needs `ssm:GetParameter` on it and `sqs:SendMessage` on the
    queue, both of which the job's publish policy grants. The other arguments are for tests.
    """

    def __init__(
        self,
        stage: str | None = None,
        *,
        sqs: "SQSClient | None" = None,
        ssm: "SSMClient | None" = None,
        sleep: Callable[[float], None] = time.sleep,
        random: Random | None = None,
    ) -> None:
        self._stage, self._sqs, self._ssm = stage, sqs, ssm
        self._sleep, self._random = sleep, random or Random()
        self._destinations: dict[str, Destination] = {}
        self._lock = RLock()

    def publish(
        self,
        job: str,
        payload: Mapping[str, Any],
        *,
        attributes: Mapping[str, AttributeValue] | None = None,
        group_id: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        """Publishes one job; returns its id, `<job>:<key>`, once SQS has confirmed the message.

        On a FIFO queue `group_id` is required, and the jobs of one group run in order; on a
        standard queue it names the tenant, for SQS's fair queues. `deduplication_id`, on FIFO
        queues only, makes SQS drop what is published under it again within five minutes; without
        one every message counts.

        Raises UnknownJob, SettingsError, or InvalidMessage and its kinds, before any call to SQS;
        and PublishFailed, from boto3's error, where SQS did not confirm. To publish again is then
        right even if the message had arrived: it is the same job.
        """
        destination, sqs = self._destination(job), self._sqs_client()
        message = compose(
            destination,
            payload,
            attributes=attributes,
            group_id=group_id,
            deduplication_id=deduplication_id,
        )
        try:
            sqs.send_message(QueueUrl=destination.queue_url, **message.fields)
        except Exception as error:
            self._forget(destination, error)
            raise PublishFailed(0, [Unsent(0, payload, *_told(error))]) from error
        return message.job_id

    def publish_many(
        self,
        job: str,
        payloads: Iterable[Any],
        *,
        attributes: PerPayload[Mapping[str, AttributeValue] | None] = None,
        group_id: PerPayload[str | None] = None,
        deduplication_id: Callable[[Any], str | None] | None = None,
    ) -> int:
        """Publishes every payload, ten to a call, in order; returns how many SQS confirmed.

        Sends while it reads, so that a generator of millions takes no memory: at most ten wait. A
        payload that cannot be published never hinders another, and what SQS refuses for a trouble
        of its own is sent again. (On a FIFO queue it then comes after the nine that went with it.)

        Raises PublishFailed at the end, with all that is left over; or at once, with the rest of
        the input untouched in `remaining`, for a failure that would meet every message: no
        permission, no queue, no network. Where `payloads` itself raises, what was read before is
        sent, and its error is raised, or is the cause of PublishFailed if anything is left over.
        """
        destination, sqs = self._destination(job), self._sqs_client()

        def compose_one(payload: Any) -> Composed:
            return compose(
                destination,
                payload,
                attributes=attributes(payload) if callable(attributes) else attributes,
                group_id=group_id(payload) if callable(group_id) else group_id,
                deduplication_id=deduplication_id(payload) if deduplication_id else None,
            )

        bulk = _BulkSend(sqs, destination, compose_one, sleep=self._sleep, random=self._random)
        try:
            return bulk.send_all(payloads)
        except PublishFailed as failed:
            self._forget(destination, failed.__cause__)
            raise

    def _destination(self, job: str) -> "Destination":
        with self._lock:
            if job not in self._destinations:
                self._destinations[job] = self._discover(job)
            return self._destinations[job]

    def _forget(self, destination: "Destination", error: BaseException | None) -> None:
        # A service outlives deployments, and a replaced queue has another name.
        if error is not None and _codes(error) & {"QueueDoesNotExist", "NonExistentQueue"}:
            self._destinations.pop(destination.job, None)

    def _discover(self, job: str) -> "Destination":
        stage = self._stage or os.environ.get("REDRIVE_STAGE")
        if not stage:
            raise SettingsError("no stage: use Publisher(stage) or set the variable REDRIVE_STAGE")
        name = f"/redrive/{stage}/{job}"
        try:
            text = self._ssm_client().get_parameter(Name=name)["Parameter"]["Value"]
        except ClientError as error:
            # ValidationException: a name that no parameter can have.
            if not _codes(error) & {"ParameterNotFound", "ValidationException"}:
                raise
            raise UnknownJob(
                f"stage {stage!r} has no job {job!r}: there is no SSM parameter {name} in this "
                "account and region. Is the name as in stacks/jobs.py, and the stage deployed?"
            ) from error
        try:
            return Destination.parse(job, text)
        except ValueError as error:
            raise SettingsError(f"the SSM parameter {name} is of no use: {error}") from error

    def _sqs_client(self) -> "SQSClient":
        with self._lock:
            if self._sqs is None:
                self._sqs = boto3.client("sqs", config=clients.config(threads=_THREADS))
            return self._sqs

    def _ssm_client(self) -> "SSMClient":
        with self._lock:
            if self._ssm is None:
                self._ssm = boto3.client("ssm", config=clients.config())
            return self._ssm


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a job's messages go, which value is its key, and how large its messages may be."""

    job: str
    key: str
    queue_url: str
    fifo: bool
    max_message_bytes: int

    @classmethod
    def parse(cls, job: str, text: str) -> Self:
        """Reads the parameter that the stack writes. Raises ValueError, saying what is wrong."""
        try:
            fields = json.loads(text)
            if fields["version"] != _PARAMETER_VERSION:
                raise ValueError(
                    f"it has version {fields['version']}, this library reads version "
                    f"{_PARAMETER_VERSION}: install the release of redrive that the stack has"
                )
            compile_key(fields["key"])
            return cls(
                job=job,
                key=fields["key"],
                queue_url=str(fields["queues"]["normal"]),
                fifo=bool(fields["fifo"]),
                max_message_bytes=int(fields["limits"]["max_message_bytes"]),
            )
        except KeyError as missing:
            raise ValueError(f"it has no {missing.args[0]!r}") from None
        except (TypeError, AttributeError):
            raise ValueError("it is no JSON object of the form that the stack writes") from None


# --- what a message is made of --------------------------------------------------------------------

# SQS carries the characters of XML 1.0. These are the others.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
NOT_CARRIED: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
_ATTRIBUTE_NAME: Final = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_RESERVED_ATTRIBUTE_NAME: Final = re.compile(r"(aws|amazon)\.", re.IGNORECASE)
_NUMBER_DIGITS: Final = 38
_SMALLEST_NUMBER, _LARGEST_NUMBER = 1e-128, 10**126

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagegroupid-property.html
_GROUP_ID: Final = re.compile("[!-~]*")


# The classes of which there is one per message are tuples: a frozen dataclass takes three times as
# long to make.
class Composed(NamedTuple):
    """A message that SQS takes and a worker can run; `fields` are SendMessage's."""

    job_id: str
    fields: dict[str, Any]
    size: int


def compose(
    destination: Destination,
    payload: Any,
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    group_id: str | None = None,
    deduplication_id: str | None = None,
) -> Composed:
    """The message of one payload. Raises InvalidMessage and its kinds, saying what is wrong."""
    body = encode(payload)
    own = encode_attributes(attributes or {})
    size = message_bytes(body, own)
    if size > destination.max_message_bytes:
        raise MessageTooLarge(
            f"body and attributes have {size} bytes, and the queue of {destination.job} takes "
            f"{destination.max_message_bytes}: store the data elsewhere and publish where it is"
        )
    fields: dict[str, Any] = {"MessageBody": body}
    if own:
        fields["MessageAttributes"] = own
    fields |= _order(destination, group_id, deduplication_id)
    return Composed(_job_id(destination, body), fields, size)


_READABLE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# As an escape in ASCII any character arrives, also one half of a surrogate pair.
_ESCAPED: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def encode(payload: Any) -> str:
    """The body of a message: compact JSON, readable where SQS carries its characters as they are.

    Raises InvalidMessage for what is no JSON object.
    """
    if not isinstance(payload, Mapping):
        raise InvalidMessage(f"a payload is a JSON object (a dict), not {type(payload).__name__}")
    try:
        body = _READABLE.encode(dict(payload))
        return _ESCAPED.encode(dict(payload)) if NOT_CARRIED.search(body) else body
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"the payload is not JSON: {error}") from error


def _job_id(destination: Destination, body: str) -> str:
    # As the worker will read it, since JSON may say less than the payload did: an enum becomes its
    # value, and the names 1 and "1" of one object become the same.
    try:
        payload = read_payload(body)
        key = render_key(payload, destination.key)
    except UnusablePayload as error:
        raise InvalidMessage(str(error)) from error
    if is_control_message(payload):
        raise InvalidMessage("a worker would take this payload for a service's test message")
    return job_id(destination.job, key)


def encode_attributes(values: Mapping[str, AttributeValue]) -> Attributes:
    """A publisher's own attributes as SendMessage takes them.

    Raises TooManyAttributes above seven, InvalidCharacters for a text that SQS does not carry, and
    InvalidMessage for a name that SQS refuses or Redrive uses, and for a value that is empty.
    """
    if len(values) > OWN_ATTRIBUTES:
        raise TooManyAttributes(
            f"{len(values)} attributes: of SQS's {limits.ATTRIBUTES}, {OWN_ATTRIBUTES} are a "
            "publisher's own and the others Redrive's"
        )
    for name in values:
        _check_attribute_name(name)
    return {name: _attribute(name, value) for name, value in values.items()}


def _check_attribute_name(name: Any) -> None:
    if not isinstance(name, str) or not _ATTRIBUTE_NAME.fullmatch(name):
        raise InvalidMessage(
            f"the attribute name {name!r} is not 1 to 256 letters, digits, '_', '-' and '.', where "
            "no '.' is first, last or beside another"
        )
    if _RESERVED_ATTRIBUTE_NAME.match(name):
        raise InvalidMessage(f"the attribute name {name!r} is reserved for AWS")
    if name == ENVELOPE:
        raise InvalidMessage(f"the attribute {name!r} is Redrive's own")


def _attribute(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str | bytes) and not value:
        raise InvalidMessage(f"the attribute {name!r} is empty; leave it out")
    if isinstance(value, bytes):
        return {"DataType": "Binary", "BinaryValue": value}
    if isinstance(value, str):
        if found := NOT_CARRIED.search(value):
            raise InvalidCharacters(
                f"the attribute {name!r} holds {found[0]!r}, which SQS does not carry in a text; "
                "send it as bytes"
            )
        return {"DataType": "String", "StringValue": value}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"DataType": "Number", "StringValue": _number(name, value)}
    raise InvalidMessage(
        f"the attribute {name!r} is of type {type(value).__name__}, not str, int, float or bytes"
    )


def _number(name: str, value: float) -> str:
    if value and not _SMALLEST_NUMBER <= abs(value) <= _LARGEST_NUMBER:
        raise InvalidMessage(f"the attribute {name!r} is no number that SQS takes (1e±126)")
    text = repr(float(value)) if isinstance(value, float) else str(int(value))
    if len(text.strip("-0")) > _NUMBER_DIGITS:
        raise InvalidMessage(f"the attribute {name!r} has more than {_NUMBER_DIGITS} digits")
    return text


def _order(
    destination: Destination, group_id: str | None, deduplication_id: str | None
) -> dict[str, str]:
    fields: dict[str, str] = {}
    if group_id is not None:
        fields["MessageGroupId"] = _checked_id("group_id", group_id)
    elif destination.fifo:
        raise InvalidMessage(f"the queue of {destination.job} is FIFO: give a group_id")
    if destination.fifo:
        # By default new for each message, so that only the repeats of one send are dropped. By the
        # job's id SQS would confirm, and drop, a job that is published again because it had died.
        # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-exactly-once-processing.html
        chosen = uuid4().hex if deduplication_id is None else deduplication_id
        fields["MessageDeduplicationId"] = _checked_id("deduplication_id", chosen)
    elif deduplication_id is not None:
        raise InvalidMessage(
            f"the queue of {destination.job} is not FIFO and knows no deduplication_id; the job's "
            "key deduplicates"
        )
    return fields


def _checked_id(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= limits.GROUP_ID_CHARACTERS:
        raise InvalidMessage(f"a {name} is a text of 1 to {limits.GROUP_ID_CHARACTERS} characters")
    if not _GROUP_ID.fullmatch(value):
        raise InvalidCharacters(f"a {name} holds letters, digits and punctuation of ASCII only")
    return value


# --- sending many ---------------------------------------------------------------------------------


class _Entry(NamedTuple):
    position: int
    payload: Any
    message: Composed

    def unsent(self, code: str, reason: str) -> Unsent:
        return Unsent(self.position, self.payload, code, reason)


class _MeetsEveryMessage(Exception):
    """The next call would fail as this one did; boto3's error is its cause."""


class _BulkSend:
    """One run of `publish_many`: what waits, how many were sent, and what could not be."""

    def __init__(
        self,
        sqs: "SQSClient",
        destination: Destination,
        compose_one: Callable[[Any], Composed],
        *,
        sleep: Callable[[float], None],
        random: Random,
    ) -> None:
        self._sqs, self._destination, self._compose_one = sqs, destination, compose_one
        self._sleep, self._random = sleep, random
        self._waiting: list[_Entry] = []
        self._waiting_bytes = 0
        self._sent = 0
        self._unsent: list[Unsent] = []

    def send_all(self, payloads: Iterable[Any]) -> int:
        rest = iter(payloads)
        try:
            broken = self._read_to_the_end(rest)
            self._send_waiting()
        except _MeetsEveryMessage as failure:
            waiting = [entry.payload for entry in self._waiting]
            raise self._failed(remaining=chain(waiting, rest)) from failure.__cause__
        if self._unsent:
            raise self._failed() from broken
        if broken:
            broken.add_note(f"publish_many: {self._sent} messages were published before this")
            raise broken
        return self._sent

    def _read_to_the_end(self, payloads: Iterator[Any]) -> Exception | None:
        """Takes the payloads one by one; returns the error that broke the input off."""
        for index in count():
            try:
                payload = next(payloads)
            except StopIteration:
                break
            except Exception as error:
                return error
            self._add(index, payload)
        return None

    def _failed(self, remaining: Iterable[Any] = ()) -> PublishFailed:
        # A payload that is refused at once overtakes those that wait to be sent.
        in_order = sorted(self._unsent, key=lambda one: one.index)
        return PublishFailed(self._sent, in_order, remaining)

    def _add(self, index: int, payload: Any) -> None:
        try:
            entry = _Entry(index, payload, self._compose_one(payload))
        except Exception as error:
            self._unsent.append(Unsent(index, payload, *_told(error)))
            return
        # SQS limits the messages of a call together as it limits one.
        if self._waiting_bytes + entry.message.size > self._destination.max_message_bytes:
            self._send_waiting(entry)
            return
        self._waiting.append(entry)
        self._waiting_bytes += entry.message.size
        if len(self._waiting) == limits.BATCH_ENTRIES:
            self._send_waiting()

    def _send_waiting(self, *next_ones: _Entry) -> None:
        """Sends what waits. The next ones wait already, and so are not lost if the call fails."""
        batch, self._waiting = self._waiting, list(next_ones)
        self._waiting_bytes = sum(entry.message.size for entry in next_ones)
        if batch:
            self._send(batch)

    def _send(self, batch: list[_Entry]) -> None:
        for pause in _PAUSES_SECONDS:
            batch = self._send_once(batch, last=False)
            if not batch:
                return
            self._sleep(self._random.uniform(0, pause))
        self._send_once(batch, last=True)

    def _send_once(self, batch: list[_Entry], *, last: bool) -> list[_Entry]:
        """Sends a batch and returns what to send again: nothing, the last time."""
        # An id is a place: a job's own may hold any character, and stand twice in a batch.
        entries: list[Any] = [
            {"Id": str(place), **entry.message.fields} for place, entry in enumerate(batch)
        ]
        try:
            response = self._sqs.send_message_batch(
                QueueUrl=self._destination.queue_url, Entries=entries
            )
        except Exception as error:
            return self._after_failed_call(batch, error, last=last)
        confirmed = {answer["Id"] for answer in response.get("Successful", ())}
        failed = {answer["Id"]: answer for answer in response.get("Failed", ())}
        again = []
        for place, entry in enumerate(batch):
            answer = failed.get(str(place))
            if answer and not answer["SenderFault"] and not last:
                again.append(entry)
            elif answer:
                self._unsent.append(entry.unsent(answer["Code"], answer.get("Message", "")))
            elif str(place) in confirmed:
                self._sent += 1
            else:
                self._unsent.append(entry.unsent("NotConfirmed", "SQS's answer leaves it out"))
        return again

    def _after_failed_call(
        self, batch: list[_Entry], error: Exception, *, last: bool
    ) -> list[_Entry]:
        if _may_pass(error) and not last:
            return batch
        about_a_message = bool(_codes(error) & _CODES_ABOUT_A_MESSAGE)
        if about_a_message and len(batch) > 1:
            self._send_apart(batch)
            return []
        self._unsent += [entry.unsent(*_told(error)) for entry in batch]
        if about_a_message:
            return []
        raise _MeetsEveryMessage from error

    def _send_apart(self, batch: list[_Entry]) -> None:
        left = iter(batch)
        try:
            for entry in left:
                self._send([entry])
        except _MeetsEveryMessage:
            self._waiting[:0] = left
            raise


# What SQS says of a whole call because of one message in it, by a rule that is not among ours.
_CODES_ABOUT_A_MESSAGE: Final = frozenset(
    {"BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue"}
)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or any("Throttl" in code for code in _codes(error))
    return isinstance(error, boto_errors.ConnectionError | boto_errors.HTTPClientError)


def _codes(error: BaseException) -> set[str]:
    """The names of a fault: boto3's classes and SQS's two protocols each spell it their own way."""
    names = {type(error).__name__}
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        names |= {str(told.get(spelling, "")) for spelling in ("Code", "QueryErrorCode")}
    return {name.removeprefix(_CODE_PREFIX) for name in names}


def _told(error: BaseException) -> tuple[str, str]:
    """An error's code and reason."""
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        code = told.get("Code", type(error).__name__)
        return code.removeprefix(_CODE_PREFIX), told.get("Message", "")
    return type(error).__name__, str(error)


_CODE_PREFIX: Final = "AWS.SimpleQueueService."

"""A message as SQS hands it to a worker, the payload in it, and the `redrive` attribute it may
carry.

Depends on nothing but the standard library and JMESPath (which boto3 brings along).
"""

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NoReturn, Self, TypeAlias

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult

from redrive import limits
from redrive.errors import NotAnSqsEvent, UnusablePayload

ENVELOPE = "redrive"
"""The name of the one message attribute that Redrive uses."""

Payload: TypeAlias = dict[str, Any]
Attributes: TypeAlias = dict[str, dict[str, Any]]
"""Message attributes as SendMessage takes them: {name: {"DataType", "StringValue" or
"BinaryValue"}}.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a batch. Times are milliseconds since the epoch, as SQS gives them."""

    id: str
    receipt_handle: str
    body: str
    receives: int
    sent_at: int
    attributes: Attributes = field(default_factory=dict)
    group_id: str | None = None
    trace_header: str | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads one record of a Lambda event.

        Raises NotAnSqsEvent, naming the field, for a record that SQS cannot have written.
        https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
        """
        try:
            system = record["attributes"]
            return cls(
                id=_text(record, "messageId"),
                receipt_handle=_text(record, "receiptHandle"),
                body=_text(record, "body", empty=True),
                receives=int(system["ApproximateReceiveCount"]),
                sent_at=int(system["SentTimestamp"]),
                attributes=sendable_attributes(record.get("messageAttributes") or {}),
                group_id=system.get("MessageGroupId"),
                trace_header=system.get("AWSTraceHeader"),
            )
        except KeyError as missing:
            raise NotAnSqsEvent(f"a record has no {missing.args[0]!r}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise NotAnSqsEvent(f"a record is not as SQS writes it: {error}") from None

    @classmethod
    def from_received(cls, received: Mapping[str, Any]) -> Self:
        """Reads one message of ReceiveMessage, asked for with all its attributes."""
        system = received["Attributes"]
        return cls(
            id=received["MessageId"],
            receipt_handle=received["ReceiptHandle"],
            body=received["Body"],
            receives=int(system["ApproximateReceiveCount"]),
            sent_at=int(system["SentTimestamp"]),
            attributes=sendable_attributes(received.get("MessageAttributes") or {}),
            group_id=system.get("MessageGroupId"),
            trace_header=system.get("AWSTraceHeader"),
        )

    @property
    def envelope(self) -> "Envelope | None":
        """The `redrive` attribute, if the message carries a valid one."""
        attribute = self.attributes.get(ENVELOPE)
        return Envelope.parse(attribute.get("StringValue", "")) if attribute else None


def _text(record: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    value = record[name]
    if not isinstance(value, str) or not (value or empty):
        raise KeyError(name)
    return value


def sendable_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> Attributes:
    """Received message attributes as a send takes them: type and value, nothing else.

    Reads both spellings, the API's (`DataType`, bytes) and the Lambda event's (`dataType`, base64).
    The list values of either are reserved by SQS, and a send that holds them is refused.
    """
    sendable: Attributes = {}
    for name, attribute in attributes.items():
        values = {key[:1].upper() + key[1:]: value for key, value in attribute.items()}
        data_type = values["DataType"]
        if data_type.partition(".")[0] == "Binary":
            binary = values["BinaryValue"]
            value = base64.b64decode(binary) if isinstance(binary, str) else bytes(binary)
            sendable[name] = {"DataType": data_type, "BinaryValue": value}
        else:
            sendable[name] = {"DataType": data_type, "StringValue": values["StringValue"]}
    return sendable


def message_bytes(body: str, attributes: Attributes) -> int:
    """What SQS counts of a message: its body, and of each attribute the name, type and value."""
    return _bytes(body) + sum(
        _bytes(name) + sum(_bytes(part) for part in attribute.values())
        for name, attribute in attributes.items()
    )


def _bytes(value: str | bytes) -> int:
    if isinstance(value, bytes) or value.isascii():
        return len(value)
    return len(value.encode(errors="surrogatepass"))


# --- the payload ----------------------------------------------------------------------------------

# What a service sends by itself to a queue that was just connected to it. Nothing is lost with it.
_CONTROL_MESSAGES = (
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
    ("Event", "s3:TestEvent"),
    # https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-sns-notifications.html
    ("Event", "autoscaling:TEST_NOTIFICATION"),
    # https://docs.aws.amazon.com/ses/latest/dg/monitor-sending-activity-using-notifications-sns.html
    ("notificationType", "AmazonSnsSubscriptionSucceeded"),
)


def read_payload(body: str) -> Payload:
    """The payload of a message: its body's JSON object, or the one that SNS wrapped, unwrapped
    once.

    Raises UnusablePayload, saying what the body is instead.
    """
    payload = _json_object(body)
    return _json_object(payload["Message"]) if _is_sns_notification(payload) else payload


def is_control_message(payload: Payload) -> bool:
    """Whether a service sent this to test its connection to the queue."""
    return any(payload.get(name) == value for name, value in _CONTROL_MESSAGES)


def _is_sns_notification(payload: Payload) -> bool:
    # A subscription without raw delivery. Strict, since a job's own payload may have such names:
    # https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html
    return (
        payload.get("Type") == "Notification"
        and isinstance(payload.get("Message"), str)
        and str(payload.get("TopicArn", "")).startswith("arn:")
    )


def _json_object(text: str) -> Payload:
    try:
        value = _DECODER.decode(text)
    except UnusablePayload:
        raise
    except (ValueError, RecursionError, TypeError) as error:
        raise UnusablePayload(f"the body is not JSON ({_position(error)})") from None
    if not isinstance(value, dict):
        raise UnusablePayload(f"the body is a JSON {_json_type(value)}; a payload is a JSON object")
    return value


def _position(error: Exception) -> str:
    # Of the parser's message only what tells nothing of the content: payloads are not for logs.
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "nested too deeply" if isinstance(error, RecursionError) else type(error).__name__


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> Payload:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise UnusablePayload(
            "a name stands twice in one JSON object; which value counts is unclear"
        )
    return value


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_a_number(text)


def _not_a_number(text: str) -> NoReturn:
    raise UnusablePayload(f"{text[:20]} is no number that JSON or DynamoDB can hold")


# One for all bodies: to make a decoder takes as long as to read a small payload.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_repeats, parse_float=_finite, parse_constant=_not_a_number
)


def _json_type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "number")


# --- the key --------------------------------------------------------------------------------------


_FORCED = re.compile(r"#force\d+$")


@lru_cache
def compile_key(expression: str) -> ParsedResult:
    """The JMESPath of a job's key, compiled. Raises jmespath.exceptions.ParseError."""
    return jmespath.compile(expression)


def render_key(payload: Payload, expression: str) -> str:
    """The job's key in this payload, as text: 7 and "7" are one key, true is "true".

    Raises UnusablePayload where there is no string, integer, or true/false at `expression`, or it
    is empty or longer than 512 UTF-8 bytes.
    """
    try:
        value = (
            payload.get(expression)  # as JMESPath would, in a tenth of the time
            if expression.isidentifier()
            else compile_key(expression).search(payload)
        )
    except (JMESPathError, TypeError, ValueError, RecursionError) as error:
        # A function or a comparison met a type that it does not take; jmespath checks but some.
        raise UnusablePayload(f"`{expression}` does not fit ({type(error).__name__})") from None
    if value is None or value == "":
        raise UnusablePayload(f"no value at `{expression}`, the job's key")
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int):
        raise UnusablePayload(
            f"the value at `{expression}` is a JSON {_json_type(value)}; "
            "a key is a string, an integer, or true/false"
        )
    key = str(value)
    if _FORCED.search(key):
        raise UnusablePayload(
            f"the value at `{expression}` ends like `#force1`, which tells a forced run from others"
        )
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise UnusablePayload(f"the value at `{expression}` is not valid Unicode") from None
    if size > limits.KEY_BYTES:
        raise UnusablePayload(
            f"the value at `{expression}` has {size} bytes; a key has at most {limits.KEY_BYTES}"
        )
    return key


def job_id(job: str, key: str) -> str:
    """The id of a job, unique in its stage: `send_email:receipt:ord_1`."""
    return f"{job}:{key}"


# --- the `redrive` attribute ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a job died. `fingerprint` is equal for failures of one kind; `failed_at` is ISO 8601."""

    type: str
    message: str
    fingerprint: str
    attempts: int
    receives: int
    failed_at: str
    function: str
    request_id: str
    log_stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the `redrive` attribute says, version 1. Times are ISO 8601 with a zone.

    After `expires_at` the publisher does not want the job run. `metadata` is what the publisher
    says besides, carried as it is.
    """

    id: str | None = None
    message_id: str | None = None
    queue: str | None = None
    sent_at: str | None = None
    expires_at: str | None = None
    replays: int = 0
    force: int = 0
    cause: Cause | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Reads an attribute's text. None for what is not valid version 1: it is never trusted."""
        try:
            fields = _DECODER.decode(text)
            if fields.pop("v") != 1:
                return None
            cause = fields.pop("cause", None)
            known = {name: fields.pop(name) for name in _ENVELOPE_TYPES if name in fields}
            if not all(type(value) in _ENVELOPE_TYPES[name] for name, value in known.items()):
                return None
            if min(known.get("replays", 0), known.get("force", 0)) < 0:
                return None
            if known.get("expires_at") is not None:
                read_time(known["expires_at"])
            return cls(**known, cause=_cause(cause), metadata=fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UnusablePayload):
            return None

    def render(self) -> str:
        """The attribute's text: ASCII JSON, at most 4 KB, the cause's message cut to fit.

        Raises ValueError when what cannot be cut is already too long.
        """
        fields = {
            **self.metadata,
            "v": 1,
            **{name: getattr(self, name) for name in _ENVELOPE_TYPES},
            "cause": None,
        }
        fields = {
            name: value
            for name, value in fields.items()
            if value is not None or name in self.metadata
        }
        if self.cause is None:
            return _within_limit(json.dumps(fields))
        fields["cause"] = asdict(self.cause) | {"message": ""}
        room = limits.ENVELOPE_BYTES - len(json.dumps(fields))
        fields["cause"]["message"] = cut(self.cause.message, room)
        return _within_limit(json.dumps(fields))


_ENVELOPE_TYPES: dict[str, tuple[type, ...]] = {
    "id": (str, type(None)),
    "message_id": (str, type(None)),
    "queue": (str, type(None)),
    "sent_at": (str, type(None)),
    "expires_at": (str, type(None)),
    "replays": (int,),
    "force": (int,),
}


def _cause(fields: Any) -> Cause | None:
    """Raises TypeError for what is neither null nor a cause."""
    if fields is None:
        return None
    numbers = {"attempts", "receives"}
    if not all(type(one) is (int if name in numbers else str) for name, one in fields.items()):
        raise TypeError("attempts and receives are integers, the rest of a cause is text")
    return Cause(**fields)


def _within_limit(text: str) -> str:
    if len(text) > limits.ENVELOPE_BYTES:
        raise ValueError(f"the `{ENVELOPE}` attribute would have {len(text)} bytes")
    return text


def cut(text: str, room: int) -> str:
    """The longest beginning of `text` that takes at most `room` bytes, and 1 KB, as ASCII JSON."""
    room = min(room, limits.CAUSE_MESSAGE_BYTES)
    length = 0
    for end, character in enumerate(text):
        length += len(json.dumps(character)) - 2
        if length > room:
            return text[:end]
    return text


def iso_time(milliseconds: float) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC: `2026-11-29T10:00:00.123Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def read_time(text: str) -> float:
    """The reverse of `iso_time`: milliseconds since the epoch.

    Raises ValueError for what is not ISO 8601, and for a time without a zone.
    """
    moment = datetime.fromisoformat(text.upper())
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no time zone: end it with Z for UTC, or with +02:00")
    return moment.timestamp() * 1000

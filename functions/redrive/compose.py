"""What a message is made of: refuses, before any call, what SQS or a worker would not take."""

import json
import re
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

from redrive import limits
from redrive.discovery import Destination
from redrive.errors import (
    InvalidCharacters,
    InvalidMessage,
    MessageTooLarge,
    TooManyAttributes,
    UnusablePayload,
)
from redrive.message import (
    ENVELOPE,
    Attributes,
    Envelope,
    is_control_message,
    iso_time,
    job_id,
    message_bytes,
    read_payload,
    render_key,
)

AttributeValue: TypeAlias = str | int | float | bytes

OWN_ATTRIBUTES: Final = limits.ATTRIBUTES - 3
"""A publisher's share of SQS's ten: `redrive`, a large payload's pointer and a spare are kept."""

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
    expires_in: timedelta | None = None,
) -> Composed:
    """The message of one payload. Raises InvalidMessage and its kinds, saying what is wrong."""
    body = encode(payload)
    own = encode_attributes(attributes or {})
    if expires_in is not None:
        own[ENVELOPE] = _expiry(expires_in)
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


def _expiry(expires_in: Any) -> dict[str, Any]:
    if not isinstance(expires_in, timedelta) or expires_in <= timedelta(0):
        raise InvalidMessage(f"expires_in is a timedelta above zero, not {expires_in!r}")
    try:
        expires_at = iso_time((time.time() + expires_in.total_seconds()) * 1000)
    except (ValueError, OverflowError):
        raise InvalidMessage(f"expires_in={expires_in!r} is after the last date there is") from None
    return {"DataType": "String", "StringValue": Envelope(expires_at=expires_at).render()}


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

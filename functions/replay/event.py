"""The event that an operator pastes, checked: every refusal names the field, what it may be, and an
example.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.parser import ParsedResult

from redrive.message import read_time
from replay.errors import BadEvent

READING: Final = ("list", "status")
ACTIONS: Final = ("list", "replay", "purge", "status")

EXAMPLE: Final = (
    '{"job": "send_email", "action": "replay", "cause": "Throttled", "dry_run": true, '
    '"reason": "SES was down"}'
)

# One row holds the event, and DynamoDB's rows hold 400 KB.
_MOST_IDS: Final = 500
_MOST_BYTES: Final = 100_000
_LONGEST_TEXT: Final = 1024
_LARGEST_CANARY: Final = 100
_FASTEST: Final = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Half-open: from `start` to just before `end`, in milliseconds since the epoch."""

    start: float = -math.inf
    end: float = math.inf

    def __contains__(self, moment: float) -> bool:
        return self.start <= moment < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which dead letters are meant: those that fit all that is asked; None asks nothing."""

    ids: frozenset[str] | None = None
    failed: TimeRange | None = None
    sent: TimeRange | None = None
    cause: str | None = None
    where: ParsedResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for. `rate` is messages a second; `fields` is the event as it came."""

    job: str
    action: str
    filters: Filters
    limit: int | None
    rate: float | None
    canary: int
    dry_run: bool
    force: bool
    reason: str | None
    confirm: str | None
    run: str | None
    show_payload: bool
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def only_reads(self) -> bool:
        """Whether nothing is sent, deleted or written."""
        return self.action in READING or self.dry_run


def read_event(event: Any, jobs: Collection[str], actions: Collection[str]) -> Request:
    """The request in an event. Raises BadEvent, saying what is wrong and how to mend it."""
    if not isinstance(event, Mapping):
        raise BadEvent(f"the event is not a JSON object. Example: {EXAMPLE}")
    for name in event:
        if name not in _FIELDS:
            raise BadEvent(_unknown(name))
    if len(json.dumps(event)) > _MOST_BYTES:
        raise BadEvent(
            f"the event is over {_MOST_BYTES} bytes, more than a run's row can keep. Give fewer "
            "ids, or several events one after the other."
        )
    values = {
        name: known.read(name, event[name]) if event.get(name) is not None else known.default
        for name, known in _FIELDS.items()
    }
    if values["job"] not in jobs:
        found = "no job" if values["job"] is None else f"no job {values['job']!r} in this stage"
        raise BadEvent(f'{found}. "job" is one of: {", ".join(jobs)}. Example: {EXAMPLE}')
    if values["action"] not in actions:
        raise BadEvent(
            f'"action" is {event["action"]!r}; this function takes {", ".join(actions)}. '
            'Example: "action": "list"'
        )
    _check_together(values)
    filters = Filters(
        **{name: values.pop(name) for name in ("ids", "failed", "sent", "cause", "where")}
    )
    return Request(**values, filters=filters, fields=dict(event))


def _check_together(values: Mapping[str, Any]) -> None:
    action = values["action"]
    if action in ("replay", "purge") and not values["reason"] and not values["dry_run"]:
        raise BadEvent(
            f'a {action} needs a "reason", which is kept with the run. Example: "reason": '
            '"SES was down"'
        )
    if action == "purge":
        # Who gives a limit believes that it holds.
        for name in ("limit", "rate", "canary", "force"):
            if values[name]:
                raise BadEvent(
                    f'a purge takes no "{name}": it deletes what the filters select. Leave it out, '
                    "and narrow the filters."
                )


class _Known(NamedTuple):
    """A field: how it is read, what it may be, an example, and what it is when left out."""

    convert: Callable[[Any], Any]
    allowed: str
    example: str
    default: Any = None

    def read(self, name: str, value: Any) -> Any:
        try:
            return self.convert(value)
        except (ValueError, TypeError, JMESPathError, OverflowError) as error:
            why = f" ({error})" if isinstance(error, _Because) else ""
            shown = repr(value)[:100]
            raise BadEvent(
                f'"{name}" is {shown}{why}; it is {self.allowed}. Example: "{name}": {self.example}'
            ) from None


class _Because(ValueError):
    """Says more of what is wrong with a value than that it is."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TEXT:
        raise ValueError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError
    return value


def _canary(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST_CANARY:
        raise ValueError
    return value


def _rate(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError
    if not 0 < value <= _FASTEST:
        raise ValueError
    return float(value)


def _ids(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MOST_IDS:
        raise ValueError
    # A key may be a number in the payload; as text it is the same job.
    return frozenset(
        str(one) if isinstance(one, int) and not isinstance(one, bool) else _text(one)
        for one in value
    )


def _range(value: Any) -> TimeRange:
    if not isinstance(value, Mapping) or not value or value.keys() - {"from", "to"}:
        raise ValueError
    ends = {name: _moment(value[name]) for name in ("from", "to") if value.get(name) is not None}
    found = TimeRange(start=ends.get("from", -math.inf), end=ends.get("to", math.inf))
    if not found.start < found.end:
        raise _Because('"from" is not before "to"')
    return found


def _moment(value: Any) -> float:
    if not isinstance(value, str):
        raise _Because("a time is a text, not a number")
    try:
        return read_time(value)
    except ValueError as error:
        zone = "has no time zone" in str(error)
        raise _Because(str(error) if zone else f"{value[:40]!r} is not ISO 8601") from None


def _where(value: Any) -> ParsedResult:
    try:
        compiled = jmespath.compile(_text(value))
    except JMESPathError as error:
        raise _Because(str(error).splitlines()[0]) from None
    _check_nodes(compiled.parsed)
    return compiled


def _check_nodes(node: Any) -> None:
    """What jmespath would find out only when it meets a payload, and for each of them."""
    if not isinstance(node, Mapping):
        return
    children = node.get("children", [])
    if node.get("type") == "function_expression":
        known = Functions.FUNCTION_TABLE.get(node["value"])
        if known is None:
            raise _Because(f"JMESPath has no function {node['value']!r}")
        signature = known["signature"]
        variadic = bool(signature) and signature[-1].get("variadic")
        if len(children) < len(signature) or (len(children) > len(signature) and not variadic):
            raise _Because(f"{node['value']} takes {len(signature)} arguments")
    if node.get("type") == "slice" and len(children) == 3 and children[2] == 0:
        raise _Because("a slice with a step of 0")
    for child in children:
        _check_nodes(child)


_TIMES: Final = (
    "a range of ISO 8601 times with a zone, the first included and the last not",
    '{"from": "2026-11-29T10:00:00Z", "to": "2026-11-29T11:00:00Z"}',
)

_FIELDS: Final[Mapping[str, _Known]] = {
    "job": _Known(_text, "the name of a job", '"send_email"'),
    "action": _Known(_text, ", ".join(ACTIONS), '"list"', "list"),
    "ids": _Known(
        _ids, f"a list of 1 to {_MOST_IDS} keys, job ids or message ids", '["receipt:ord_1"]'
    ),
    "failed": _Known(_range, *_TIMES),
    "sent": _Known(_range, *_TIMES),
    "cause": _Known(_text, "an error's type or a fingerprint", '"Throttled"'),
    "where": _Known(_where, "a JMESPath expression on the payload", '"data.amount > `100`"'),
    "limit": _Known(_count, "a number of messages, 1 or more", "500"),
    "rate": _Known(_rate, f"messages a second, above 0 and at most {_FASTEST:g}", "50"),
    "canary": _Known(_canary, f"a number of messages, 0 to {_LARGEST_CANARY}", "5", 0),
    "dry_run": _Known(_flag, "true or false", "true", default=False),
    "force": _Known(_flag, "true or false", "true", default=False),
    "reason": _Known(_text, f"a text of at most {_LONGEST_TEXT} characters", '"SES was down"'),
    "confirm": _Known(
        _text, 'the "confirm" of a list with the same filters, at most 15 minutes old', '"eyJ…"'
    ),
    "run": _Known(_text, 'the "run" of an earlier answer', '"20261129T100000-1f2e3d"'),
    "show_payload": _Known(_flag, "true or false", "true", default=False),
}


def _unknown(name: Any) -> str:
    near = get_close_matches(str(name), _FIELDS, n=1)
    meant = f' Did you mean "{near[0]}"?' if near else ""
    return f'no field "{name}".{meant} An event has: {", ".join(_FIELDS)}. Example: {EXAMPLE}'

"""The token without which nothing is purged: what was listed, when, and how many.

A safety catch, not a secret: whoever may invoke the function may purge. It makes sure that somebody
has looked at what goes.
"""

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from replay.errors import NotConfirmed

GOOD_FOR_SECONDS: Final = 15 * 60

_FILTERS: Final = ("job", "ids", "failed", "sent", "cause", "where")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What a list has shown: so many, that had died before a moment (milliseconds)."""

    count: int
    moment: int


def token(fields: Mapping[str, Any], confirmed: Confirmed) -> str:
    """The token for an event's filters."""
    claims: dict[str, Any] = {"moment": confirmed.moment, "count": confirmed.count}
    claims |= {"check": _check(fields, confirmed)}
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


def check(fields: Mapping[str, Any], now: float | None = None) -> Confirmed:
    """What the event's token confirms. Raises NotConfirmed, saying why it confirms nothing."""
    text = fields.get("confirm")
    how = 'Run a list with the same filters, and put its "confirm" into the event.'
    if not text:
        raise NotConfirmed(f"a purge needs a confirmation. {how}")
    try:
        claims = json.loads(base64.urlsafe_b64decode(str(text) + "=" * (-len(str(text)) % 4)))
        confirmed = Confirmed(count=int(claims["count"]), moment=int(claims["moment"]))
        is_ours = claims["check"] == _check(fields, confirmed)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotConfirmed(f'"confirm" is no token of a list. {how}') from None
    if not is_ours:
        raise NotConfirmed(f'"confirm" belongs to other filters or another job. {how}')
    if (time.time() if now is None else now) * 1000 > confirmed.moment + GOOD_FOR_SECONDS * 1000:
        raise NotConfirmed(f'"confirm" is older than {GOOD_FOR_SECONDS // 60} minutes. {how}')
    return confirmed


def _check(fields: Mapping[str, Any], confirmed: Confirmed) -> str:
    filters: dict[str, Any] = {name: fields.get(name) for name in _FILTERS}
    if filters["ids"]:
        filters["ids"] = sorted(map(str, filters["ids"]))
    text = json.dumps([filters, confirmed.count, confirmed.moment], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]

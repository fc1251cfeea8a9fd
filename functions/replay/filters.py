"""Which dead letters a request means: those that fit all that it asks for."""

from typing import Any

from jmespath.parser import ParsedResult

from redrive.message import Payload
from replay.event import Filters
from replay.letters import DeadLetter


def by_itself(letter: DeadLetter, filters: Filters) -> bool:
    """Whether it fits what a letter can tell without the tables: who it is, and what is in it."""
    if filters.ids is not None and not filters.ids & letter.names:
        return False
    return filters.where is None or _holds(filters.where, letter.payload)


def by_tables(letter: DeadLetter, filters: Filters) -> bool:
    """Whether it fits the rest: why it died, and when. A time that nothing tells is in no range."""
    if filters.cause is not None and filters.cause not in (letter.cause, letter.fingerprint):
        return False
    return all(
        wanted is None or (moment is not None and moment in wanted)
        for wanted, moment in ((filters.failed, letter.failed_at), (filters.sent, letter.sent_at))
    )


def lacks_time(letter: DeadLetter, filters: Filters) -> bool:
    """Whether a range is asked for, and nothing tells the letter's time."""
    return (filters.failed is not None and letter.failed_at is None) or (
        filters.sent is not None and letter.sent_at is None
    )


def _holds(where: ParsedResult, payload: Payload) -> bool:
    try:
        return _is_true(where.search(payload))
    except Exception:  # whatever a function of JMESPath's makes of a payload that it was not for
        return False  # it converts or compares what this payload has otherwise


def _is_true(value: Any) -> bool:
    """As JMESPath has it, where 0 is true."""
    return value is not None and value is not False and value not in ("", [], {})

"""Whether a dataclass's values are of the types that its fields declare."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any, get_args, get_origin

# A type that a spec may use: what it is called, and how a value of it is written.
_TYPES: dict[Any, tuple[str, str]] = {
    str: ("a string", "Write it in quotes, like 'email_id'"),
    int: ("an int", "Write an int, without a fraction or quotes"),
    bool: ("a bool", "Write True or False"),
    timedelta: ("a timedelta: it has no unit", "Write timedelta(seconds=...)"),
    tuple: ("a tuple", "Mind the comma: ('sns',)"),
    Mapping: ("a mapping", "Write {'NAME': 'value'}"),
}


def misfits(value: Any, declared: Any, label: str = "") -> Iterator[tuple[str, str]]:
    """What in `value` is not as `declared`, a type or `tuple[str, ...]`: the problem and the fix.

    Looks into tuples, mappings and the dataclasses in them.
    """
    kind: Any = get_origin(declared) or declared
    label = label or repr(value)
    # To Python, True is an int.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        name, fix = _TYPES.get(kind, (f"an {kind.__name__}", f"Write {kind.__name__}(...)"))
        yield f"{label} is not {name}", fix
    elif is_dataclass(kind):
        for field in fields(kind):
            part = getattr(value, field.name)
            yield from misfits(part, field.type, f"{field.name}={part!r}")
    elif kind is tuple:
        for item in value:
            yield from misfits(item, get_args(declared)[0])
    elif kind is Mapping:
        for name, item in value.items():
            yield from misfits(name, get_args(declared)[0])
            yield from misfits(item, get_args(declared)[1], f"{name}={item!r}")

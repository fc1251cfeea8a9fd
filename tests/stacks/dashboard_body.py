"""What a dashboard's body refers to, as CloudWatch stores it and as the template has it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shown:
    """A metric in a widget."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    """Each name with its value, in the order of the names."""

    @property
    def kind(self) -> tuple[str, str, tuple[str, ...]]:
        """Namespace, name, and the names of the dimensions."""
        return self.namespace, self.name, tuple(name for name, _ in self.dimensions)


def metrics(body: Mapping[str, Any]) -> set[Shown]:
    """All metrics of all widgets, those under an expression too."""
    return {
        Shown(namespace, name, tuple(sorted(zip(rest[::2], rest[1::2], strict=True))))
        for row in rows(body)
        if isinstance(row[0], str)
        for namespace, name, *rest in [[part for part in row if isinstance(part, str)]]
    }


def rows(body: Mapping[str, Any]) -> Iterator[list[Any]]:
    """A widget's `metrics`: names and dimensions, or an expression, then how it is shown.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
    """
    for widget in body["widgets"]:
        yield from widget["properties"].get("metrics", [])

"""CloudWatch's metric math, as much of it as our alarms and the tests' wrong ones need.

A series holds one value a period, oldest first; None is a period without a datapoint. The rules are
those of https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html,
called "the page" here. None of them could be checked against the real CloudWatch.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TypeAlias

Series: TypeAlias = list[float | None]
Array: TypeAlias = tuple[Series, ...]
Value: TypeAlias = float | Series | Array
Operation: TypeAlias = Callable[[float, float], float | None]


class NotSupported(ValueError):
    """Nothing is guessed: what is not known here is named."""


class Reading(Enum):
    """What a gap does. The page is terse, and people report both: an alarm must bear either."""

    PAGE = "a missing operand is 0 where the other has a value; DIFF goes back to the last value"
    STRICT = "nothing comes of a missing operand, nor of a DIFF whose previous period is missing"


def evaluate(
    expression: str,
    series: Mapping[str, Series],
    *,
    reading: Reading = Reading.PAGE,
    seconds: float = 60.0,
) -> Series:
    """The expression's series, given those of the ids in it; `seconds` is the length of a period.

    Raises:
        NotSupported: a function, an id or a syntax that is not known here, by its name.
    """
    try:
        body = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        raise NotSupported(f"{expression!r} is no metric math that is known here") from None
    value = _Evaluation(series, reading, seconds).value(body)
    if not isinstance(value, list):
        raise NotSupported(f"{expression!r} is a number or an array: an alarm needs one series")
    return value


@dataclass(frozen=True)
class _Evaluation:
    series: Mapping[str, Series]
    reading: Reading
    seconds: float

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
            case ast.Name(id=name):
                return self._named(name)
            case ast.List(elts=items):
                return tuple(self._series(item) for item in items)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._combined(operator.mul, -1.0, self.value(operand))
            case (
                ast.BinOp(left=left, op=kind, right=right)
                | ast.Compare(left=left, ops=[kind], comparators=[right])
            ) if operation := _OPERATIONS.get(type(kind)):
                return self._combined(operation, self.value(left), self.value(right))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._called(name, arguments)
        raise NotSupported(f"{ast.unparse(node)!r} is no metric math that is known here")

    def _named(self, name: str) -> Series:
        try:
            return self.series[name]
        except KeyError:
            raise NotSupported(f"there is no metric or expression with the id {name!r}") from None

    def _series(self, node: ast.expr) -> Series:
        value = self.value(node)
        if not isinstance(value, list):
            raise NotSupported(f"{ast.unparse(node)!r} must be one series")
        return value

    def _combined(self, operation: Operation, left: Value, right: Value) -> Value:
        if isinstance(left, tuple) or isinstance(right, tuple):
            raise NotSupported("arithmetic with an array is not known here")
        if isinstance(left, float) and isinstance(right, float):
            number = operation(left, right)
            if number is None:
                raise NotSupported(f"{left:g} cannot be divided by 0")
            return number
        lefts = left if isinstance(left, list) else _where_there_is(right, left)
        rights = right if isinstance(right, list) else _where_there_is(left, right)
        return [self._point(operation, *pair) for pair in zip(lefts, rights, strict=True)]

    def _point(self, operation: Operation, left: float | None, right: float | None) -> float | None:
        """Of "-" and 7 the page makes 0 and 7, for arithmetic and for comparisons."""
        missing = (left is None) + (right is None)
        if missing == 2 or (missing and self.reading is Reading.STRICT):
            return None
        return operation(left or 0.0, right or 0.0)

    def _called(self, name: str, arguments: list[ast.expr]) -> Value:
        match name, arguments:
            case "FILL", [series, ast.Name(id="REPEAT")]:
                return _repeated(self._series(series))
            case "FILL", [series, ast.Name(id="LINEAR")]:
                return _interpolated(self._series(series))
            case "FILL", [series, filler]:
                return _filled(self._series(series), self._number(filler))
            case (("DIFF" | "RATE"), [series]):
                # RATE is "divided by the time difference in seconds between the two values".
                seconds = self.seconds if name == "RATE" else None
                return self._differences(self._series(series), seconds)
            case "ABS", [series]:
                return [point if point is None else abs(point) for point in self._series(series)]
            case "IF", [condition, *branches] if 1 <= len(branches) <= 2:
                return self._chosen(self._series(condition), [self.value(b) for b in branches])
            case (("MAX" | "MIN" | "SUM"), [array]):
                return _aggregated(name, self.value(array))
        shown = f"{name}({', '.join(map(ast.unparse, arguments))})"
        raise NotSupported(f"{shown!r}: the function {name} with these arguments is not known here")

    def _number(self, node: ast.expr) -> float:
        value = self.value(node)
        if not isinstance(value, float):
            raise NotSupported(f"{ast.unparse(node)!r} must be a number")
        return value

    def _differences(self, series: Series, seconds: float | None) -> Series:
        """The page: "between each value in the time series and the preceding value"."""
        farthest = len(series) if self.reading is Reading.PAGE else 1

        def difference(index: int, now: float) -> float | None:
            for back in range(1, min(index, farthest) + 1):
                if (before := series[index - back]) is not None:
                    return (now - before) / (back * seconds if seconds else 1.0)
            return None

        return [None if now is None else difference(i, now) for i, now in enumerate(series)]

    def _chosen(self, condition: Series, branches: list[Value]) -> Series:
        """The page's tables: true without a value is 0, false without one has no datapoint."""
        columns = [_column(branch, len(condition)) for branch in branches]
        if len(columns) == 1:
            columns.append([None] * len(condition))
        return [
            None if flag is None else (yes or 0.0) if flag else no
            for flag, yes, no in zip(condition, *columns, strict=True)
        ]


def _column(value: Value, length: int) -> Series:
    if isinstance(value, tuple):
        raise NotSupported("IF with an array is not known here")
    return value if isinstance(value, list) else [value] * length


def _where_there_is(other: Value, number: Value) -> Series:
    """A number has a value wherever the series beside it has one."""
    assert isinstance(other, list) and isinstance(number, float)  # noqa: S101, PT018
    return [None if point is None else number for point in other]


def _filled(series: Series, filler: float) -> Series:
    return [filler if point is None else point for point in series]


def _repeated(series: Series) -> Series:
    """A gap at the beginning stays: there is nothing to repeat."""
    last: float | None = None
    return [last := last if point is None else point for point in series]


def _interpolated(series: Series) -> Series:
    """A line between the values at a gap's two ends; a gap with one end stays."""
    result = list(series)
    known = [index for index, point in enumerate(series) if point is not None]
    for start, end in pairwise(known):
        first, last = result[start] or 0.0, result[end] or 0.0
        for index in range(start + 1, end):
            result[index] = first + (last - first) * (index - start) / (end - start)
    return result


def _aggregated(name: str, array: Value) -> Series:
    """Over the values that there are.

    Of one series these make a number, which depends on how far CloudWatch looks back: the page
    warns of that in alarms.
    """
    if not isinstance(array, tuple):
        raise NotSupported(f"{name} of anything but an array of series is not known here")
    columns = (
        [point for point in column if point is not None] for column in zip(*array, strict=True)
    )
    return [_AGGREGATES[name](column) if column else None for column in columns]


_AGGREGATES: dict[str, Callable[[list[float]], float]] = {"MAX": max, "MIN": min, "SUM": sum}


def _quotient(left: float, right: float) -> float | None:
    """The page: a data point that would be divided by zero is dropped."""
    return left / right if right else None


def _comparison(compare: Callable[[float, float], bool]) -> Operation:
    return lambda left, right: float(compare(left, right))


_OPERATIONS: dict[type[ast.operator | ast.cmpop], Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.Lt: _comparison(operator.lt),
    ast.LtE: _comparison(operator.le),
    ast.Gt: _comparison(operator.gt),
    ast.GtE: _comparison(operator.ge),
    ast.Eq: _comparison(operator.eq),
    ast.NotEq: _comparison(operator.ne),
}

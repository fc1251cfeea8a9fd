"""The states that an alarm goes through, from its CloudFormation properties and its metrics.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html is "the
page" here. What could not be checked against the real CloudWatch:

- how many periods more than EvaluationPeriods it looks at (`EXTRA`, as in the page's examples), and
  that an expression sees no more than those;
- that the newest minute is often not there yet, and is looked at again when it is: a test leaves it
  out of the series;
- that a period of several minutes ends anew each minute;
- everything that `metric_math` says of itself.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from local.metric_math import NotSupported, Reading, Series, evaluate

OK, ALARM, INSUFFICIENT_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"
EXTRA = 2
"""Periods that CloudWatch looks at beyond EvaluationPeriods."""
SeriesOf = Callable[[Mapping[str, Any]], Series]

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
_TREATMENTS = ("missing", "notBreaching", "breaching", "ignore")
_SIMPLE = {"Namespace", "MetricName", "Dimensions", "Statistic", "ExtendedStatistic", "Period"}
_RULE = {
    "ComparisonOperator",
    "Threshold",
    "EvaluationPeriods",
    "DatapointsToAlarm",
    "TreatMissingData",
}
_OF_NO_MATTER = {
    "ActionsEnabled",
    "AlarmActions",
    "AlarmDescription",
    "AlarmName",
    "InsufficientDataActions",
    "OKActions",
    "Tags",
}


def states(
    properties: Mapping[str, Any],
    series_of: SeriesOf,
    *,
    reading: Reading = Reading.PAGE,
    extra: int = EXTRA,
) -> list[str]:
    """The alarm's state at the end of each minute of its metrics.

    `series_of` is given a MetricStat (`{"Metric": {"Namespace", "MetricName", "Dimensions"},
    "Stat", "Period"}`), also for an alarm without `Metrics`, and returns one value a minute, oldest
    first: the statistic of the period that ends with it, None where there is none.

    Raises:
        NotSupported: a property, or a value of one, that is not known here; nothing is guessed.
    """
    alarm = Alarm.of(properties)
    series = {name: series_of(metric) for name, metric in alarm.metrics.items()}
    (minutes, *others) = {len(values) for values in series.values()}
    if others:
        raise ValueError("the series of one alarm must cover the same minutes")
    state, result = INSUFFICIENT_DATA, []
    for end in range(1, minutes + 1):
        until = {name: values[:end] for name, values in series.items()}
        state = alarm.state(until, before=state, reading=reading, extra=extra)
        result.append(state)
    return result


@dataclass(frozen=True)
class Alarm:
    """What an alarm's properties say of its state."""

    metrics: Mapping[str, Mapping[str, Any]]
    """The MetricStat behind each id."""
    expressions: Mapping[str, str]
    watched: str
    """The id whose values are compared."""
    period_minutes: int
    breaches: Callable[[float], bool]
    periods: int
    to_alarm: int
    treatment: str

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        unknown = properties.keys() - _SIMPLE - _RULE - _OF_NO_MATTER - {"Metrics"}
        compares = _OPERATORS.get(properties["ComparisonOperator"])
        treatment = properties.get("TreatMissingData", "missing")
        if unknown or compares is None or treatment not in _TREATMENTS:
            named = ", ".join([*sorted(unknown), properties["ComparisonOperator"], treatment])
            raise NotSupported(f"not all of this is known here: {named}")
        threshold, periods = float(properties["Threshold"]), int(properties["EvaluationPeriods"])
        metrics, expressions, watched = _queries(properties)
        return cls(
            metrics,
            expressions,
            watched,
            period_minutes=_period_minutes(metrics.values()),
            breaches=lambda value: compares(value, threshold),
            periods=periods,
            to_alarm=int(properties.get("DatapointsToAlarm", periods)),
            treatment=treatment,
        )

    def state(
        self,
        series: Mapping[str, Series],
        before: str,
        *,
        reading: Reading = Reading.PAGE,
        extra: int = EXTRA,
    ) -> str:
        """Now, at the end of these series, which hold a value a minute for each metric's id."""
        newest_first = slice(None, None, -self.period_minutes)
        seen = {
            name: values[newest_first][: self.periods + extra][::-1]
            for name, values in series.items()
        }
        resolved = _Resolved(seen, self.expressions, reading, self.period_minutes * 60.0)
        return self._judged(resolved[self.watched], before)

    def _judged(self, seen: Series, before: str) -> str:
        """Of the periods that CloudWatch looks at, the most recent ones that have a value count;
        what `TreatMissingData` says fills up what is missing to EvaluationPeriods.
        """
        real = [self.breaches(value) for value in seen if value is not None][-self.periods :]
        missing = self.periods - len(real)
        breaching = sum(real) + (missing if self.treatment == "breaching" else 0)
        if breaching >= self.to_alarm:
            return ALARM
        if not all(real) or self.treatment in ("breaching", "notBreaching"):
            return OK
        if self.treatment == "ignore":
            return before
        return ALARM if self._is_old_enough(seen) else INSUFFICIENT_DATA

    def _is_old_enough(self, seen: Series) -> bool:
        """The page's "premature transitions": too few values, all breaching, bring an ALARM once
        the oldest is DatapointsToAlarm old.
        """
        ages = [len(seen) - index for index, value in enumerate(seen) if value is not None]
        return bool(ages) and ages[0] >= self.to_alarm


def _queries(
    properties: Mapping[str, Any],
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str], str]:
    """The metrics and the expressions by their ids, and the id that the alarm watches."""
    if "Metrics" not in properties:
        return {"m": _simple_metric(properties)}, {}, "m"
    queries = {query["Id"]: query for query in properties["Metrics"]}
    watched = [name for name, query in queries.items() if query.get("ReturnData", True)]
    if len(watched) != 1:
        raise NotSupported(f"one of an alarm's Metrics must have ReturnData, not {len(watched)}")
    metrics = {
        name: query["MetricStat"] for name, query in queries.items() if "MetricStat" in query
    }
    expressions = {
        name: query["Expression"] for name, query in queries.items() if "Expression" in query
    }
    return metrics, expressions, watched[0]


def _simple_metric(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Metric": {
            "Namespace": properties["Namespace"],
            "MetricName": properties["MetricName"],
            "Dimensions": properties.get("Dimensions", []),
        },
        "Stat": properties.get("Statistic") or properties["ExtendedStatistic"],
        "Period": properties["Period"],
    }


def _period_minutes(metrics: Iterable[Mapping[str, Any]]) -> int:
    """CloudWatch: "Each metric must be using the same period"."""
    period, *others = {int(metric["Period"]) for metric in metrics}
    if others or period % 60:
        raise NotSupported("an alarm's metrics must have one period of whole minutes")
    return period // 60


class _Resolved(dict[str, Series]):
    """The series of each id, those of expressions made when they are asked for."""

    def __init__(
        self,
        seen: dict[str, Series],
        expressions: Mapping[str, str],
        reading: Reading,
        seconds: float,
    ) -> None:
        super().__init__(seen)
        self._waiting = dict(expressions)
        self._reading, self._seconds = reading, seconds

    def __missing__(self, name: str) -> Series:
        # One that refers to itself does not wait any more when it is asked for again.
        expression = self._waiting.pop(name)
        self[name] = evaluate(expression, self, reading=self._reading, seconds=self._seconds)
        return self[name]

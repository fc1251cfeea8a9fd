import pytest

from local.alarm_state import states
from local.metric_math import NotSupported, Reading

KEPT = "Retain current state"
RULE = {
    "ComparisonOperator": "GreaterThanOrEqualToThreshold",
    "Threshold": 10,
    "EvaluationPeriods": 3,
    "TreatMissingData": "missing",
}
SIMPLE = {
    **RULE,
    "Namespace": "AWS/SQS",
    "MetricName": "m",
    "Statistic": "Maximum",
    "Period": 60,
}


def metric(name, **more):
    stat = {"Metric": {"Namespace": "AWS/SQS", "MetricName": name}, "Stat": "Sum", "Period": 60}
    return {"Id": name, "MetricStat": stat | more, "ReturnData": False}


def on(expression, *names, **rule):
    metrics = [*map(metric, names), {"Id": "e", "Expression": expression, "ReturnData": True}]
    return RULE | {"Metrics": metrics} | rule


WATCHED = {"Id": "e", "Expression": "a"}


def of(**series):
    return lambda metric: series[metric["Metric"]["MetricName"]]


def points(text):
    return [{"0": 0.0, "X": 10.0, "-": None}[point] for point in text.split()]


def last(text, before="OK", **rule):
    """The state at the end of these points, "0" in order, "X" breaching, "-" missing."""
    history = {"OK": "0 0 0 0 0", "ALARM": "X X X X X"}[before]
    return states(SIMPLE | rule, of(m=points(f"{history} {text}")))[-1]


INSUFFICIENT = "INSUFFICIENT_DATA"
TREATMENTS = ("missing", "ignore", "breaching", "notBreaching")


@pytest.mark.parametrize("before", ["OK", "ALARM"])
@pytest.mark.parametrize(
    ("to_alarm", "text", "by_treatment"),
    [
        # The page's tables: 3 periods, 5 looked at, and the column of each treatment.
        (3, "0 - X - X", ("OK", "OK", "OK", "OK")),
        (3, "0 - - - -", ("OK", "OK", "OK", "OK")),
        (3, "- - - - -", (INSUFFICIENT, KEPT, "ALARM", "OK")),
        (3, "0 X X - X", ("ALARM", "ALARM", "ALARM", "ALARM")),
        (3, "- - X - -", ("ALARM", KEPT, "ALARM", "OK")),
        (3, "- - - X -", (INSUFFICIENT, KEPT, "ALARM", "OK")),
        (3, "- - - - X", (INSUFFICIENT, KEPT, "ALARM", "OK")),
        (2, "0 - X - X", ("ALARM", "ALARM", "ALARM", "ALARM")),
        (2, "0 0 X 0 X", ("ALARM", "ALARM", "ALARM", "ALARM")),
        (2, "0 - X - -", ("OK", "OK", "ALARM", "OK")),
        (2, "- - - - 0", ("OK", "OK", "ALARM", "OK")),
        (2, "- - - X -", ("ALARM", KEPT, "ALARM", "OK")),
        (2, "- - - - X", (INSUFFICIENT, KEPT, "ALARM", "OK")),
        # All there: only the newest three count.
        (3, "X X X X 0", ("OK", "OK", "OK", "OK")),
        (1, "X X 0 0 0", ("OK", "OK", "OK", "OK")),
    ],
)
def test_missing_data_is_treated_as_in_the_pages_tables(to_alarm, text, by_treatment, before):
    for treatment, state in zip(TREATMENTS, by_treatment, strict=True):
        rule = {"DatapointsToAlarm": to_alarm, "TreatMissingData": treatment}
        assert last(text, before, **rule) == (before if state is KEPT else state), treatment


def test_a_new_alarm_has_no_state_and_then_one_a_minute():
    series = points("- - 0 X X X 0")
    expected = [INSUFFICIENT, INSUFFICIENT, "OK", "OK", "OK", "ALARM", "OK"]
    assert states(SIMPLE, of(m=series)) == expected
    assert states(SIMPLE | {"TreatMissingData": "ignore"}, of(m=series)) == expected
    without = {name: value for name, value in SIMPLE.items() if name != "TreatMissingData"}
    assert states(without, of(m=points("0 - - - - -")))[-2:] == ["OK", INSUFFICIENT]


@pytest.mark.parametrize(
    ("operator", "alarms"),
    [
        ("GreaterThanOrEqualToThreshold", [10, 11]),
        ("GreaterThanThreshold", [11]),
        ("LessThanThreshold", [9]),
        ("LessThanOrEqualToThreshold", [9, 10]),
    ],
)
def test_each_operator(operator, alarms):
    rule = SIMPLE | {"ComparisonOperator": operator, "EvaluationPeriods": 1}
    for value in (9.0, 10.0, 11.0):
        assert states(rule, of(m=[value])) == ["ALARM" if value in alarms else "OK"]


def test_the_metric_is_told_as_a_metric_stat_of_either_kind():
    asked = []

    def series_of(metric):
        asked.append(metric)
        return [0.0]

    dimensions = [{"Name": "QueueName", "Value": "q"}]
    p99 = SIMPLE | {"ExtendedStatistic": "p99", "Dimensions": dimensions}
    del p99["Statistic"]
    states(SIMPLE, series_of)
    states(p99, series_of)
    states(on("a + b", "a", "b"), series_of)

    def told(name, stat, **more):
        described = {"Namespace": "AWS/SQS", "MetricName": name} | more
        return {"Metric": described, "Stat": stat, "Period": 60}

    assert asked == [
        told("m", "Maximum", Dimensions=[]),
        told("m", "p99", Dimensions=dimensions),
        told("a", "Sum"),
        told("b", "Sum"),
    ]


def test_expressions_refer_to_each_other_in_any_order():
    alarm = on("FILL(sum, 0)", "a", "b", EvaluationPeriods=1)
    alarm["Metrics"] += [{"Id": "sum", "Expression": "a + b", "ReturnData": False}]
    assert states(alarm, of(a=[3.0, 5.0, None], b=[4.0, 5.0, None])) == ["OK", "ALARM", "OK"]


def test_a_watched_metric_needs_no_expression():
    alarm = RULE | {"Metrics": [metric("a") | {"ReturnData": True}], "EvaluationPeriods": 1}
    assert states(alarm, of(a=[10.0])) == ["ALARM"]
    del alarm["Metrics"][0]["ReturnData"]
    assert states(alarm, of(a=[10.0])) == ["ALARM"]


def test_both_readings_of_a_gap_can_be_asked_for():
    alarm = on("a + b", "a", "b", EvaluationPeriods=1)
    series = of(a=[10.0], b=[None])
    assert states(alarm, series, reading=Reading.PAGE) == ["ALARM"]
    assert states(alarm, series, reading=Reading.STRICT) == [INSUFFICIENT]


def test_cloudwatch_looks_at_some_periods_more_and_an_expression_sees_no_others():
    alarm = on("DIFF(FILL(a, REPEAT))", "a", EvaluationPeriods=1, TreatMissingData="notBreaching")
    series = of(a=[0.0, None, None, 10.0])
    assert states(alarm, series)[-1] == "OK"
    assert states(alarm, series, extra=3)[-1] == "ALARM"
    assert states(SIMPLE, of(m=points("X X X - - -")))[-1] == "ALARM"
    assert states(SIMPLE, of(m=points("X X X - - -")), extra=0)[-1] == INSUFFICIENT


def test_a_period_of_minutes_looks_back_by_that_much_each_minute():
    alarm = SIMPLE | {"Period": 180, "EvaluationPeriods": 2, "TreatMissingData": "notBreaching"}
    assert states(alarm, of(m=points("X 0 0 X 0 X"))) == ["OK", "OK", "OK", "ALARM", "OK", "OK"]
    rate = on("RATE(a)", "a", EvaluationPeriods=1, Threshold=1)
    rate["Metrics"][0] = metric("a", Period=120)
    assert states(rate, of(a=[0.0, 0.0, 120.0, 119.0]))[-2:] == ["ALARM", "OK"]


@pytest.mark.parametrize(
    ("alarm", "named"),
    [
        (SIMPLE | {"ThresholdMetricId": "e"}, "ThresholdMetricId"),
        (SIMPLE | {"EvaluateLowSampleCountPercentile": "ignore"}, "EvaluateLowSample"),
        (SIMPLE | {"ComparisonOperator": "GreaterThanUpperThreshold"}, "GreaterThanUpper"),
        (SIMPLE | {"TreatMissingData": "notbreaching"}, "notbreaching"),
        (SIMPLE | {"Period": 90}, "whole minutes"),
        (SIMPLE | {"Period": 10}, "whole minutes"),
        (RULE | {"Metrics": [metric("a"), metric("b")]}, "ReturnData"),
        (RULE | {"Metrics": [metric("a"), WATCHED, WATCHED | {"Id": "f"}]}, "not 2"),
        (on("e", "a"), "'e'"),
        (on("a + z", "a"), "'z'"),
        (on("SEARCH(a)", "a"), "SEARCH"),
    ],
)
def test_what_is_not_known_is_named_and_never_guessed(alarm, named):
    with pytest.raises(NotSupported) as refused:
        states(alarm, lambda metric: [0.0, 0.0])
    assert named in str(refused.value)


def test_the_metrics_of_an_alarm_have_one_period_and_cover_the_same_minutes():
    alarm = on("a + b", "a", "b")
    with pytest.raises(ValueError, match="the same minutes"):
        states(alarm, of(a=[0.0], b=[0.0, 0.0]))
    alarm["Metrics"][1] = metric("b", Period=300)
    with pytest.raises(NotSupported, match="one period"):
        states(alarm, of(a=[0.0], b=[0.0]))


def test_what_says_who_is_told_is_of_no_matter_to_the_state():
    rest = {"AlarmName": "n", "AlarmDescription": "d", "AlarmActions": ["t"], "OKActions": []}
    rest |= {"ActionsEnabled": True, "InsufficientDataActions": [], "Tags": []}
    assert states(SIMPLE | rest, of(m=[0.0])) == ["OK"]

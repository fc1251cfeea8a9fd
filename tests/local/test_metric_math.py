import pytest

from local.metric_math import NotSupported, Reading, evaluate

NONE = None
BOTH = list(Reading)


def math(expression, reading=Reading.PAGE, **series):
    return evaluate(expression, series, reading=reading)


@pytest.mark.parametrize("reading", BOTH)
@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("a + b", [12, 24]),
        ("a - b", [8, 16]),
        ("a * b", [20, 80]),
        ("a / b", [5, 5]),
        ("-a", [-10, -20]),
        ("-(a - 30) * 2", [40, 20]),
        ("a + b * 2.5", [15, 30]),
        ("100 - a / 2", [95, 90]),
        ("2 * 3 + a", [16, 26]),
        ("a > 10", [0, 1]),
        ("a >= 10", [1, 1]),
        ("a < b", [0, 0]),
        ("10 <= a", [1, 1]),
        ("a == 20", [0, 1]),
        ("a != 20", [1, 0]),
        ("ABS(b - a)", [8, 16]),
        ("MAX([a, b, a + 1])", [11, 21]),
        ("MIN([a, b])", [2, 4]),
        ("SUM([a, b])", [12, 24]),
        ("IF(a > 10, a, b)", [2, 20]),
        ("IF(a > 10, 1, 0)", [0, 1]),
        ("IF(a > 10, a)", [NONE, 20]),
    ],
)
def test_where_all_have_values_it_is_plain_arithmetic(expression, result, reading):
    assert math(expression, reading, a=[10.0, 20.0], b=[2.0, 4.0]) == result


@pytest.mark.parametrize(
    ("expression", "page", "strict"),
    [
        # "Missing values in a time series are treated as 0"; what nobody has, has no value.
        ("a + b", [1, 20, NONE], [NONE, NONE, NONE]),
        ("a - b", [1, -20, NONE], [NONE, NONE, NONE]),
        ("a / b", [NONE, 0, NONE], [NONE, NONE, NONE]),
        ("a < b", [0, 1, NONE], [NONE, NONE, NONE]),
        # A number is no time series: it has no timestamps of its own.
        ("a + 5", [6, NONE, NONE], [6, NONE, NONE]),
        ("5 > b", [NONE, 0, NONE], [NONE, 0, NONE]),
        ("-a", [-1, NONE, NONE], [-1, NONE, NONE]),
        ("MAX([a, b])", [1, 20, NONE], [1, 20, NONE]),
        ("ABS(a)", [1, NONE, NONE], [1, NONE, NONE]),
    ],
)
def test_a_missing_operand_is_read_in_two_ways(expression, page, strict):
    series = {"a": [1.0, NONE, NONE], "b": [NONE, 20.0, NONE]}
    assert math(expression, Reading.PAGE, **series) == page
    assert math(expression, Reading.STRICT, **series) == strict


def test_comparisons_are_those_of_the_page():
    series = {"metric1": [30, 20, 0, 0], "metric2": [20, NONE, 20, NONE]}
    assert math("metric1 < metric2", **series) == [0, 0, 1, 0]
    assert math("metric1 >= 30", **series) == [1, 0, 0, 0]


@pytest.mark.parametrize("reading", BOTH)
@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("IF(metric1, metric2, metric3)", [30, 0, 20, NONE, NONE]),
        ("IF(metric1, 5, metric3)", [5, 5, 20, NONE, NONE]),
        ("IF(metric1, metric2, 5)", [30, 0, 5, 5, NONE]),
    ],
)
def test_if_is_that_of_the_pages_tables(expression, result, reading):
    series = {
        "metric1": [1, 1, 0, 0, NONE],
        "metric2": [30, NONE, 0, 0, 30],
        "metric3": [0, 0, 20, NONE, 20],
    }
    assert math(expression, reading, **series) == result


def test_a_division_by_zero_has_no_value():
    assert math("a / b", a=[1.0, 1.0], b=[0.0, 2.0]) == [NONE, 0.5]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("FILL(a, 0)", [0, 1, 0, 0, 7, 0]),
        ("FILL(a, -1.5)", [-1.5, 1, -1.5, -1.5, 7, -1.5]),
        ("FILL(a, REPEAT)", [NONE, 1, 1, 1, 7, 7]),
        ("FILL(a, LINEAR)", [NONE, 1, 3, 5, 7, NONE]),
    ],
)
def test_fill(expression, result):
    assert math(expression, a=[NONE, 1.0, NONE, NONE, 7.0, NONE]) == result


def test_differences_go_back_to_the_last_value_or_not_beyond_one_period():
    series = {"a": [1.0, 4.0, NONE, NONE, 10.0, 10.0]}
    assert math("DIFF(a)", **series) == [NONE, 3, NONE, NONE, 6, 0]
    assert math("DIFF(a)", Reading.STRICT, **series) == [NONE, 3, NONE, NONE, NONE, 0]


def test_a_rate_is_per_second_of_the_time_between_the_values():
    series = {"a": [0.0, 120.0, NONE, 360.0]}
    assert math("RATE(a)", **series) == [NONE, 2, NONE, 2]
    assert math("RATE(a)", Reading.STRICT, **series) == [NONE, 2, NONE, NONE]
    assert evaluate("RATE(a)", series, seconds=120.0) == [NONE, 1, NONE, 1]


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("RUNNING_SUM(a)", "RUNNING_SUM"),
        ("fill(a, 0)", "fill"),
        ("FILL(a)", "FILL"),
        ("FILL(a, NEXT)", "NEXT"),
        ("FILL(a, a)", "'a' must be a number"),
        ("MAX(a)", "MAX of anything but an array"),
        ("MAX([a, 1])", "'1' must be one series"),
        ("DIFF([a])", "'[a]' must be one series"),
        ("IF(a)", "IF"),
        ("IF(a, [a], 1)", "IF with an array"),
        ("[a] + 1", "arithmetic with an array"),
        ("a + nowhere", "'nowhere'"),
        ("0 < a < 2", "0 < a < 2"),
        ("a && a", "a && a"),
        ("a ^ 2", "a ^ 2"),
        ("+a", "+a"),
        ("a and a", "a and a"),
        ("FILL(a, value=0)", "FILL(a, value=0)"),
        ("a + True", "True"),
        ("'a'", "'a'"),
        ("1 / 0", "divided by 0"),
        ("7", "7"),
        ("[a]", "[a]"),
    ],
)
def test_what_is_not_known_is_named_and_never_guessed(expression, named):
    with pytest.raises(NotSupported) as refused:
        math(expression, a=[1.0])
    assert named in str(refused.value)

import json

from local.measures import Tail, metrics_of


def emf(metrics, *dimension_sets, **values):
    directive = {
        "Namespace": "Redrive",
        "Dimensions": dimension_sets,
        "Metrics": [{"Name": name, "Unit": "Count"} for name in metrics],
    }
    return json.dumps({"_aws": {"Timestamp": 0, "CloudWatchMetrics": [directive]}, **values})


def found(*lines):
    return [
        (
            namespace,
            datum["MetricName"],
            datum["Values"],
            {dimension["Name"]: dimension["Value"] for dimension in datum["Dimensions"]},
        )
        for namespace, datum in metrics_of(lines, {"q": "uuid"})
    ]


def test_an_emf_line_is_each_metric_under_each_set_of_its_dimensions():
    line = emf(["A", "B"], ["stage"], ["stage", "job"], A=[1.0, 2.0], B=3, stage="s", job="j")
    assert found(line) == [
        ("Redrive", "A", [1.0, 2.0], {"stage": "s"}),
        ("Redrive", "B", [3], {"stage": "s"}),
        ("Redrive", "A", [1.0, 2.0], {"stage": "s", "job": "j"}),
        ("Redrive", "B", [3], {"stage": "s", "job": "j"}),
    ]


def test_an_invocation_by_an_event_source_counts_and_so_does_its_error():
    when = "2026-11-29 21:12:00 WARNING [lambda] "
    f, mapping = {"FunctionName": "Redrive-f"}, {"EventSourceMappingUUID": "uuid"}
    assert found(when + "ESM: Lambda Redrive-f processed 10 SQS messages from q") == [
        ("AWS/Lambda", "Invocations", [1.0], f),
        ("AWS/Lambda", "Errors", [0.0], f),
        ("AWS/Lambda", "PolledEventCount", [10.0], mapping),
    ]
    failed = "ESM: Lambda Redrive-f failed processing SQS batch from q (errorType=None errorMess"
    assert found(when + failed) == [
        ("AWS/Lambda", "Invocations", [1.0], f),
        ("AWS/Lambda", "Errors", [1.0], f),
        ("AWS/Lambda", "PolledEventCount", [1.0], mapping),
    ]
    of_another = "ESM: Lambda Redrive-f processed 2 SQS messages from r (1 partial failures)"
    assert [name for _, name, _, _ in found(of_another)] == ["Invocations", "Errors"]


def test_other_lines_and_torn_ones_hold_no_metrics():
    torn = emf(["A"], ["stage"], A=1, stage="s")[:-10]
    assert found("ESM: Lambda f output:", '{"level": "INFO", "_aws": 1}', torn, "") == []


def test_a_log_is_read_from_now_on_line_by_line_once_they_are_whole(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    tail = Tail(log)
    assert tail.lines() == []

    with log.open("a") as file:
        for text, lines in [("one\ntw", ["one"]), ("o", []), ("\n\n", ["two", ""]), ("", [])]:
            file.write(text)
            file.flush()
            assert tail.lines() == lines

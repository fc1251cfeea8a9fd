"""The last word on the template: whatever was done to it after the constructs were made."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnResource
from aws_cdk import aws_lambda as lambda_

from stacks.job_queue import JobQueue
from stacks.job_spec import JobSpec
from stacks.rules import findings
from stacks.stage import Stage
from tests.stacks.synthesis import Synthesis, jobs_stack, violations

MAPPING = {
    "Type": "AWS::Lambda::EventSourceMapping",
    "Properties": {
        "EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]},
        "FunctionName": {"Ref": "Worker"},
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "Enabled": True,
    },
}


def template(mapping: dict[str, Any] | None = None, **queue_and_worker: int) -> dict[str, Any]:
    visibility = queue_and_worker.get("visibility", 360)
    timeout = queue_and_worker.get("timeout", 60)
    properties = MAPPING["Properties"] | (mapping or {})  # type: ignore[operator]
    return {
        "Resources": {
            "Mapping": MAPPING | {"Properties": properties},
            "Queue": {
                "Type": "AWS::SQS::Queue",
                "Properties": {"VisibilityTimeout": visibility},
            },
            "Worker": {"Type": "AWS::Lambda::Function", "Properties": {"Timeout": timeout}},
        }
    }


def found(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.resource) for finding in findings(document)]


def test_a_template_in_order_has_no_findings(showcase: Synthesis) -> None:
    assert found(template()) == []
    assert found(showcase.template) == []
    assert found({}) == []


@pytest.mark.parametrize("types", [[], ["SomethingElse"]])
def test_failures_that_nobody_reports_are_found(types: list[str]) -> None:
    document = template({"FunctionResponseTypes": types})
    assert found(document) == [("ReportBatchItemFailures", "Mapping")]


@pytest.mark.parametrize("enabled", [False, None, "true"])
def test_a_mapping_that_is_not_enabled_is_found(enabled: object) -> None:
    assert found(template({"Enabled": enabled})) == [("MappingEnabled", "Mapping")]


@pytest.mark.parametrize(
    ("visibility", "timeout", "window", "wrong"),
    [
        (360, 60, 0, False),
        (359, 60, 0, True),
        (30, 60, 0, True),
        (365, 60, 5, False),
        (364, 60, 5, True),
    ],
)
def test_a_visibility_timeout_below_six_timeouts_and_the_window_is_found(
    visibility: int, timeout: int, window: int, wrong: bool
) -> None:
    document = template(
        {"MaximumBatchingWindowInSeconds": window}, visibility=visibility, timeout=timeout
    )
    assert found(document) == ([("VisibilityTimeout", "Queue")] if wrong else [])


def test_what_is_taken_away_counts_as_awss_default() -> None:
    document = template()
    del document["Resources"]["Queue"]["Properties"]
    (finding,) = findings(document)
    assert finding.problem.startswith("30 s are less than 6 times the function's timeout of 60 s")

    document = template(visibility=18)
    del document["Resources"]["Worker"]["Properties"]
    assert found(document) == []


def test_mappings_of_other_sources_are_not_ours() -> None:
    document = template({"FunctionResponseTypes": [], "Enabled": False})
    document["Resources"]["Queue"]["Type"] = "AWS::Kinesis::Stream"
    assert found(document) == []
    document = template({"EventSourceArn": "arn:aws:sqs:eu-west-1:123456789012:elsewhere"})
    assert found(document) == []


# Against CDK itself, each by the way that people take.


def last_resort(construct: Any) -> CfnResource:
    resource: CfnResource = construct.node.default_child
    return resource


def raise_timeout(job: JobQueue) -> None:
    last_resort(job.worker).add_property_override("Timeout", 400)


def lower_visibility(job: JobQueue) -> None:
    last_resort(job.queue).add_property_override("VisibilityTimeout", 30)


def forget_failures(job: JobQueue) -> None:
    last_resort(job.event_source_mapping).add_property_deletion_override("FunctionResponseTypes")


def disable(job: JobQueue) -> None:
    last_resort(job.event_source_mapping).add_property_override("Enabled", False)


@pytest.mark.parametrize(
    ("override", "rule", "problem"),
    [
        (raise_timeout, "VisibilityTimeout", "360 s are less than 6 times .* 400 s"),
        (lower_visibility, "VisibilityTimeout", "30 s are less than 6 times .* 60 s"),
        (forget_failures, "ReportBatchItemFailures", "deletes the jobs that failed"),
        (disable, "MappingEnabled", "until SQS's retention deletes"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_escape_hatch_that_loses_or_repeats_jobs_fails_synth(
    tmp_path: Path, override: Callable[[JobQueue], None], rule: str, problem: str
) -> None:
    app, stack = jobs_stack(tmp_path, [JobSpec("send_sms", key="id")], Stage())
    override(stack.jobs["send_sms"])
    (violation,) = synth_and_fail(app, tmp_path, "Redrive")
    assert violation["ruleName"] == rule
    assert re.search(problem, violation["description"])
    assert violation["suggestedFix"]
    (construct,) = violation["violatingConstructs"]
    assert construct["constructPath"].startswith("Redrive-dev/SendSms/")


def synth_and_fail(app: App, folder: Path, plugin: str) -> list[dict[str, Any]]:
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    report = json.loads((folder / "out" / "validation-report.json").read_text())
    return list(violations(report, plugin))


def test_a_mapping_that_somebody_adds_by_hand_is_held_to_the_rules(tmp_path: Path) -> None:
    app, stack = jobs_stack(tmp_path, [JobSpec("send_sms", key="id")], Stage())
    job = stack.jobs["send_sms"]
    lambda_.EventSourceMapping(
        stack, "Second", target=job.worker, event_source_arn=job.queue.queue_arn
    )
    rules = [violation["ruleName"] for violation in synth_and_fail(app, tmp_path, "Redrive")]
    assert sorted(rules) == ["MappingEnabled", "ReportBatchItemFailures"]


def test_a_standard_dead_letter_queue_under_a_fifo_queue_fails_synth(tmp_path: Path) -> None:
    app, stack = jobs_stack(tmp_path, [JobSpec("send_sms", key="id", fifo=True)], Stage())
    last_resort(stack.jobs["send_sms"].dead_letter_queue).add_property_deletion_override(
        "FifoQueue"
    )
    rules = [v["ruleName"] for v in synth_and_fail(app, tmp_path, "CloudFormation Validate")]
    assert rules == ["E3502"]


def test_a_wildcard_that_nobody_gave_a_reason_for_fails_synth(tmp_path: Path) -> None:
    app, stack = jobs_stack(tmp_path, [JobSpec("send_sms", key="id")], Stage())
    stack.jobs["send_sms"].queue.grant(stack.jobs["send_sms"].worker, "sqs:*")
    (violation,) = synth_and_fail(app, tmp_path, "AwsSolutions")
    assert violation["ruleName"] == "AwsSolutions-IAM5[Action::sqs:*]"


def acknowledged(synthesis: Synthesis) -> set[tuple[str, str]]:
    return {
        (violation["acknowledgedId"].rpartition("::AwsSolutions-")[2], violation["acknowledgedAt"])
        for part in synthesis.report["pluginReports"]
        for violation in part.get("suppressedViolations", [])
        if part["pluginName"] == "AwsSolutions"
    }


def test_acknowledgements_are_narrow(dev: Synthesis, showcase: Synthesis) -> None:
    def always(job: str) -> set[tuple[str, str]]:
        return {
            ("IAM5[Resource::*]", f"Redrive-dev/{job}/WorkerRole"),
            ("L1", f"Redrive-dev/{job}/Worker"),
        }

    bucket = "arn:<AWS::Partition>:s3:::invoices-<AWS::AccountId>-<AWS::Region>/*"
    of_the_job = {one for one in acknowledged(dev) if "/SendEmail/" in one[1]}
    assert of_the_job == always("SendEmail")
    assert acknowledged(showcase) == always("SendInvoice") | always("BookSeat") | {
        ("L1", "Redrive-dev/Replay/Function"),
        ("L1", "Redrive-dev/Inspect/Function"),
        ("IAM5[Action::s3:Put*]", "Redrive-dev/SendInvoice/WorkerRole"),
        (f"IAM5[Resource::{bucket}]", "Redrive-dev/SendInvoice/WorkerRole"),
    }

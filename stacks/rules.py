"""What every synth checks beyond AWS's own rules, on the template that will be deployed.

The template is the last word: aspects, escape hatches and second calls have all been at it by then.
AWS checks a visibility timeout when a mapping is created, not when the function's timeout is
raised later; that failures are reported, it never checks, and deletes them with the rest.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jsii
from aws_cdk import (
    Acknowledgment,
    CfnResource,
    IPolicyValidationContext,
    IPolicyValidationPlugin,
    PolicyValidationPluginReport,
    PolicyViolatingResource,
    PolicyViolation,
    Validations,
)
from constructs import IConstruct

from stacks.job_spec import VISIBILITY_PER_TIMEOUT

# AWS's own, for a property that somebody took away.
_DEFAULT_VISIBILITY = 30
_DEFAULT_TIMEOUT = 3


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept one finding of cdk-nag's AwsSolutions, like `SQS3`, on this construct, and say why."""
    Validations.of(construct).acknowledge(
        Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
    )


def silence_cfn_lint(construct: IConstruct, *rules: str) -> None:
    """Accept what cfn-lint warns of on this construct's own resource."""
    resource = cast("CfnResource", construct.node.default_child)
    resource.add_metadata("cfn-lint", {"config": {"ignore_checks": list(rules)}})


@dataclass(frozen=True)
class Finding:
    """One resource that breaks one rule."""

    rule: str
    resource: str
    property: str
    problem: str
    fix: str


def findings(template: Mapping[str, Any]) -> Iterator[Finding]:
    """What in a template would lose jobs or run them twice; it looks at each mapping of a queue."""
    resources = template.get("Resources", {})
    for name, resource in resources.items():
        if resource["Type"] == "AWS::Lambda::EventSourceMapping":
            mapping = resource["Properties"]
            queue = _target(mapping.get("EventSourceArn"))
            if resources.get(queue, {}).get("Type") == "AWS::SQS::Queue":
                yield from _mapping_findings(name, mapping)
                yield from _visibility_findings(resources, mapping, queue)


def _mapping_findings(name: str, mapping: Mapping[str, Any]) -> Iterator[Finding]:
    if "ReportBatchItemFailures" not in mapping.get("FunctionResponseTypes", []):
        yield Finding(
            "ReportBatchItemFailures",
            name,
            "FunctionResponseTypes",
            "Without ReportBatchItemFailures the poller deletes the jobs that failed",
            "Leave FunctionResponseTypes as JobQueue sets it",
        )
    if mapping.get("Enabled") is not True:
        yield Finding(
            "MappingEnabled",
            name,
            "Enabled",
            "A mapping that is not enabled lets its queue fill until SQS's retention deletes jobs",
            "Leave Enabled true; to stop a job for a while, disable its mapping by hand",
        )


def _visibility_findings(
    resources: Mapping[str, Any], mapping: Mapping[str, Any], queue: str
) -> Iterator[Finding]:
    function = resources.get(_target(mapping.get("FunctionName")), {}).get("Properties", {})
    properties = resources[queue].get("Properties", {})
    visibility = properties.get("VisibilityTimeout", _DEFAULT_VISIBILITY)
    timeout = function.get("Timeout", _DEFAULT_TIMEOUT)
    window = mapping.get("MaximumBatchingWindowInSeconds", 0)
    least = VISIBILITY_PER_TIMEOUT * timeout + window
    if visibility < least:
        yield Finding(
            "VisibilityTimeout",
            queue,
            "VisibilityTimeout",
            f"{visibility} s are less than {VISIBILITY_PER_TIMEOUT} times the function's timeout of"
            f" {timeout} s and the batching window of {window} s, so that jobs would run twice",
            f"Set JobSpec.timeout alone, from which {least} s follow",
        )


def _target(reference: Any) -> str:
    """The logical id that a `Ref` or `Fn::GetAtt` names, else nothing."""
    if not isinstance(reference, Mapping):
        return ""
    return str(reference.get("Ref") or reference.get("Fn::GetAtt", [""])[0])


@jsii.implements(IPolicyValidationPlugin)
class DeliveryRules:
    """`findings` as a validation plugin: CDK runs it after synthesis and fails on what it finds."""

    @property
    def name(self) -> str:
        """The heading of its findings."""
        return "Redrive"

    @property
    def version(self) -> str | None:
        """None: it is part of this app."""
        return None

    @property
    def rule_ids(self) -> list[str] | None:
        """None: they are for CDK's statistics."""
        return None

    def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
        """Report every finding in every template of the app."""
        violations = [
            _violation(finding, path)
            for path in context.template_paths
            for finding in findings(json.loads(Path(path).read_text()))
        ]
        return PolicyValidationPluginReport(success=not violations, violations=violations)


def _violation(finding: Finding, template_path: str) -> PolicyViolation:
    return PolicyViolation(
        rule_name=finding.rule,
        description=finding.problem,
        fix=finding.fix,
        violating_resources=[
            PolicyViolatingResource(
                resource_logical_id=finding.resource,
                template_path=template_path,
                locations=[f"Properties/{finding.property}"],
            )
        ],
    )

"""Synthesise once per configuration and look at the template as a person would.

Logical ids lose the hash that CDK adds, so that `SendEmailQueueA47F8591` reads `SendEmailQueue`;
`Ref` and `Fn::GetAtt` become `<SendEmailQueue>` and `<SendEmailQueue.Arn>`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from app import build
from stacks.catalogue import ROOT, Catalogue
from stacks.job_spec import JobSpec
from stacks.jobs_stack import JobsStack
from stacks.stage import Stage

_HASH = re.compile(r"(?<=.)[0-9A-F]{8}$")


@dataclass(frozen=True)
class Synthesis:
    """A stack after synthesis."""

    folder: Path
    stack_name: str

    @cached_property
    def path(self) -> Path:
        return self.folder / f"{self.stack_name}.template.json"

    @cached_property
    def template(self) -> dict[str, Any]:
        return _json(self.path)

    @cached_property
    def report(self) -> dict[str, Any]:
        """What the validation plugins found, acknowledged findings too."""
        return _json(self.folder / "validation-report.json")

    def told(self) -> list[str]:
        """What the `cdk` command prints as information."""
        metadata = _json(self.folder / f"{self.stack_name}.metadata.json")
        entries = [entry for part in metadata.values() for entry in part]
        infos = [entry["data"] for entry in entries if entry["type"] == "aws:cdk:info"]
        return [info.partition(" [ack")[0] for info in infos]

    def resources(self, *types: str) -> dict[str, dict[str, Any]]:
        """Name without hash -> the resource, its intrinsics readable."""
        return {
            short(name): readable(resource)
            for name, resource in self.template["Resources"].items()
            if not types or resource["Type"] in types
        }

    def properties(self, name: str) -> dict[str, Any]:
        properties: dict[str, Any] = self.resources()[name]["Properties"]
        return properties

    def outputs(self) -> dict[str, str]:
        return {
            name: readable(output["Value"]) for name, output in self.template["Outputs"].items()
        }

    def statements(self, name: str) -> list[dict[str, Any]]:
        """The statements of a policy resource, actions and resources as sorted lists."""
        properties = self.properties(name)
        document = properties.get("PolicyDocument") or properties["KeyPolicy"]
        return [
            statement | {part: sorted(_listed(statement[part])) for part in ("Action", "Resource")}
            for statement in document["Statement"]
        ]


def _json(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def short(logical_id: str) -> str:
    return _HASH.sub("", logical_id)


def readable(value: Any) -> Any:
    """A value of a template with its intrinsic functions as text."""
    if isinstance(value, list):
        return [readable(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "Ref" in value:
        return f"<{short(value['Ref'])}>"
    if "Fn::GetAtt" in value:
        return f"<{short(value['Fn::GetAtt'][0])}.{value['Fn::GetAtt'][1]}>"
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return separator.join(readable(part) for part in parts)
    return {key: readable(item) for key, item in value.items()}


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def feature_flags() -> dict[str, Any]:
    """What the `cdk` command would read from cdk.json."""
    context: dict[str, Any] = _json(ROOT / "cdk.json")["context"]
    return context


def synthesize_app(folder: Path, **context: str) -> Synthesis:
    """The whole app, as `cdk synth -c name=value` makes it."""
    app = App(context=feature_flags() | context, outdir=str(folder))
    stack = build(app)
    app.synth()
    return Synthesis(folder, stack.stack_name)


def jobs_stack(folder: Path, specs: Iterable[JobSpec], stage: Stage) -> tuple[App, JobsStack]:
    """A stack of jobs that are made up here, checked as the app checks its own."""
    app = App(context=feature_flags(), outdir=str(folder / "out"))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    specs = tuple(specs)
    for spec in specs:
        write_handler(folder / "functions" / spec.name)
    catalogue = Catalogue.of(specs, folder / "functions")
    return app, JobsStack(app, stage=stage, catalogue=catalogue)


def synthesize(folder: Path, *specs: JobSpec, stage: Stage | None = None) -> Synthesis:
    stage = stage or Stage()
    app, _ = jobs_stack(folder, specs, stage)
    app.synth()
    return Synthesis(folder / "out", stage.stack_name)


def write_handler(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "handler.py").write_text("def handler(event, context): ...\n")


def violations(report: dict[str, Any], plugin: str) -> Iterator[dict[str, Any]]:
    for part in report["pluginReports"]:
        if part["pluginName"] == plugin:
            yield from part["violations"]


# Permissions


def identity_policies(synthesis: Synthesis) -> dict[str, list[dict[str, Any]]]:
    names = synthesis.resources("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
    return {name: synthesis.statements(name) for name in names}


def allows(*actions: str, on: str | Iterable[str], **condition: Any) -> dict[str, Any]:
    resources = [on] if isinstance(on, str) else sorted(on)
    return {"Effect": "Allow", "Action": sorted(actions), "Resource": resources, **condition}


def same(statements: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    return sorted(map(str, map(_ordered, statements))) == sorted(map(str, map(_ordered, expected)))


def _ordered(statement: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(statement.items())


PARAMETERS = "arn:<AWS::Partition>:ssm:<AWS::Region>:<AWS::AccountId>:parameter"

VIA_DYNAMODB = {"StringEquals": {"kms:ViaService": "dynamodb.<AWS::Region>.<AWS::URLSuffix>"}}

KEY_FOR_SENDERS = allows("kms:Decrypt", "kms:GenerateDataKey", on="<Key.Arn>")
KEY_FOR_TABLES = allows(
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
    on="<Key.Arn>",
    Condition=VIA_DYNAMODB,
)

"""The template as the embedded AWS can have it: a copy, without what its CloudFormation refuses.

The template for AWS stays as it is. MiniStack 1.5.33 has topics, their policies and subscriptions,
dashboards, and alarms on one metric.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.server import ACCOUNT, REGION, LocalError

ALARM = "AWS::CloudWatch::Alarm"
_ALARM_ARN = f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:"
_REFUSED = {
    "AWS::CloudWatch::AlarmMuteRule": "it only keeps alarms quiet, and here nobody sleeps",
    "AWS::CloudWatch::CompositeAlarm": "the alarms that it is made of notify by themselves",
    "AWS::Logs::QueryDefinition": "it only saves a query for the console",
}


class TemplateRefused(LocalError):
    """What is left out is needed by something that is not."""


def embedded_assembly(assembly: Path) -> Path:
    """A copy of the cloud assembly, beside it, with such templates. Its files are links."""
    copy = assembly.with_name("cdk.embedded")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(assembly, copy, copy_function=os.link)
    for file in copy.glob("*.template.json"):
        stack = file.name.removesuffix(".template.json")
        template = without_refused(json.loads(file.read_text()), stack)
        file.unlink()
        file.write_text(json.dumps(template))
    return copy


def without_refused(template: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """The template without what is refused; an alarm's name and ARN stay what others refer to.

    Raises:
        TemplateRefused: a resource or an output refers to another one that is left out.
    """
    resources = template["Resources"]
    left_out = {name: resource for name, resource in resources.items() if _reason(resource)}
    kept = {
        name: _independent(resource, left_out)
        for name, resource in resources.items()
        if name not in left_out
    }
    rest = {**template, "Resources": kept}
    return dict(_renamed(rest, left_out, stack))


def alarm_name(stack: str, logical_id: str, resource: Mapping[str, Any]) -> Any:
    """What an alarm that is left out of the stack is called in the embedded AWS."""
    return resource["Properties"].get("AlarmName", f"{stack}-{logical_id}")


def _reason(resource: Mapping[str, Any]) -> str | None:
    if resource["Type"] == ALARM and "Metrics" in resource["Properties"]:
        return "an alarm on metric math: `local/cloudwatch.py` puts it by PutMetricAlarm"
    return _REFUSED.get(resource["Type"])


def _independent(resource: Mapping[str, Any], left_out: Mapping[str, Any]) -> Mapping[str, Any]:
    named = resource.get("DependsOn", [])
    others = [named] if isinstance(named, str) else named
    return {**resource, "DependsOn": [other for other in others if other not in left_out]}


def _renamed(value: Any, left_out: Mapping[str, Any], stack: str) -> Any:
    """With the alarms that are left out by the names that they will have."""
    match value:
        case {"Ref": str(name)} if name in left_out:
            return _name(name, "Ref", left_out[name], stack)
        case {"Fn::GetAtt": [str(name), str(attribute)]} if name in left_out:
            return _name(name, attribute, left_out[name], stack)
        case dict():
            return {key: _renamed(item, left_out, stack) for key, item in value.items()}
        case list():
            return [_renamed(item, left_out, stack) for item in value]
    return value


def _name(name: str, attribute: str, resource: Mapping[str, Any], stack: str) -> Any:
    own = alarm_name(stack, name, resource)
    match resource["Type"], attribute:
        case "AWS::CloudWatch::Alarm", "Ref":
            return own
        case "AWS::CloudWatch::Alarm", "Arn":
            return {"Fn::Join": ["", [_ALARM_ARN, own]]}
    raise TemplateRefused(f"{name}.{attribute} is needed, but it is left out: {_reason(resource)}")

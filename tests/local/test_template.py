import json

import pytest

from local.template import TemplateRefused, alarm_name, embedded_assembly, without_refused

TOPIC = {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": "page"}}
SIMPLE = {
    "Type": "AWS::CloudWatch::Alarm",
    "Properties": {"MetricName": "m", "Namespace": "n", "AlarmActions": [{"Ref": "Topic"}]},
}
MATH = {
    "Type": "AWS::CloudWatch::Alarm",
    "Properties": {"Metrics": [], "AlarmActions": [{"Ref": "Topic"}]},
}
COMPOSITE = {"Type": "AWS::CloudWatch::CompositeAlarm", "Properties": {"AlarmRule": "TRUE"}}
RESOURCES = {"Topic": TOPIC, "Simple": SIMPLE, "Math": MATH}


def left(resources, **rest):
    return without_refused({"Resources": resources, **rest}, "Stack")


@pytest.mark.parametrize(
    "refused",
    [
        MATH,
        COMPOSITE,
        {"Type": "AWS::CloudWatch::AlarmMuteRule", "Properties": {}},
        {"Type": "AWS::Logs::QueryDefinition", "Properties": {}},
    ],
)
def test_what_ministack_refuses_is_left_out_and_nothing_else(refused):
    template = {"Resources": {"Topic": TOPIC, "Simple": SIMPLE, "X": refused}, "Rules": {"r": 1}}
    before = json.dumps(template)

    assert set(without_refused(template, "Stack")["Resources"]) == {"Topic", "Simple"}
    assert without_refused(template, "Stack")["Rules"] == {"r": 1}
    assert json.dumps(template) == before


def test_nobody_waits_for_what_is_left_out():
    resources = RESOURCES | {
        "One": TOPIC | {"DependsOn": "Math"},
        "Two": TOPIC | {"DependsOn": ["Math", "Topic"]},
    }
    kept = left(resources)["Resources"]
    assert (kept["One"]["DependsOn"], kept["Two"]["DependsOn"]) == ([], ["Topic"])


def test_an_alarm_that_is_left_out_keeps_its_name_and_its_arn():
    named = MATH | {"Properties": MATH["Properties"] | {"AlarmName": "growth"}}
    dashboard = {
        "Type": "AWS::CloudWatch::Dashboard",
        "Properties": {"DashboardBody": {"Fn::Join": ["", [{"Fn::GetAtt": ["Math", "Arn"]}]]}},
    }
    resources = RESOURCES | {"Named": named, "Dashboard": dashboard}
    outputs = {"A": {"Value": {"Ref": "Math"}}, "B": {"Value": {"Ref": "Named"}}}

    kept = left(resources, Outputs=outputs)

    assert kept["Outputs"] == {"A": {"Value": "Stack-Math"}, "B": {"Value": "growth"}}
    (arn,) = kept["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Join"][1]
    prefix = "arn:aws:cloudwatch:eu-central-2:000000000000:alarm:"
    assert arn == {"Fn::Join": ["", [prefix, "Stack-Math"]]}
    assert alarm_name("Stack", "Named", named) == "growth"


def test_what_needs_anything_else_that_is_left_out_is_refused_with_the_reason():
    output = {"A": {"Value": {"Fn::GetAtt": ["Composite", "Arn"]}}}
    with pytest.raises(TemplateRefused, match=r"Composite\.Arn is needed.*notify by themselves"):
        left({"Composite": COMPOSITE}, Outputs=output)
    with pytest.raises(TemplateRefused, match=r"Composite\.Ref is needed"):
        left({"Composite": COMPOSITE}, Outputs={"A": {"Value": {"Ref": "Composite"}}})
    with pytest.raises(TemplateRefused, match=r"Math\.Other"):
        left(RESOURCES, Outputs={"A": {"Value": {"Fn::GetAtt": ["Math", "Other"]}}})


def test_the_assembly_for_aws_stays_as_it_is(tmp_path):
    assembly = tmp_path / "cdk.out"
    (assembly / "asset.1").mkdir(parents=True)
    (assembly / "asset.1" / "handler.py").write_text("code")
    original = json.dumps({"Resources": RESOURCES})
    (assembly / "Redrive-local.template.json").write_text(original)

    for _ in range(2):  # deployed again
        copy = embedded_assembly(assembly)

    template = json.loads((copy / "Redrive-local.template.json").read_text())
    assert set(template["Resources"]) == {"Topic", "Simple"}
    assert (copy / "asset.1" / "handler.py").read_text() == "code"
    assert (assembly / "Redrive-local.template.json").read_text() == original


def test_references_are_named_after_the_stack_of_the_file(tmp_path):
    assembly = tmp_path / "cdk.out"
    assembly.mkdir()
    template = {"Resources": RESOURCES, "Outputs": {"A": {"Value": {"Ref": "Math"}}}}
    (assembly / "Redrive-local.template.json").write_text(json.dumps(template))

    copy = embedded_assembly(assembly)

    told = json.loads((copy / "Redrive-local.template.json").read_text())["Outputs"]
    assert told == {"A": {"Value": "Redrive-local-Math"}}

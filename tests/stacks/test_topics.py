"""The topics, and every link between an alarm and who is told of it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stacks.synthesis import Synthesis, readable, short, synthesize_app

OWN_ACCOUNT = {"StringEquals": {"aws:SourceAccount": "<AWS::AccountId>"}}
TOPICS = {"PageTopic", "NotifyTopic"}


@pytest.fixture(params=["dev", "prod", "local", "showcase", "keyed", "dev_with_key"])
def stack(request: pytest.FixtureRequest) -> Synthesis:
    synthesis: Synthesis = request.getfixturevalue(request.param)
    return synthesis


# The walk: alarm -> action -> topic -> policy -> key


def cut_links(template: dict[str, Any]) -> list[str]:
    """Why which alarm would tell nobody."""
    resources = {short(name): readable(each) for name, each in template["Resources"].items()}
    return [
        f"{name}: {why}"
        for name, resource in resources.items()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
        for why in _cuts(resource["Properties"], resources)
    ]


def _cuts(alarm: dict[str, Any], resources: dict[str, Any]) -> Iterator[str]:
    topics = [
        name
        for name in (action.strip("<>") for action in alarm.get("AlarmActions", []))
        if resources.get(name, {}).get("Type") == "AWS::SNS::Topic"
    ]
    if not topics or not alarm.get("ActionsEnabled", True):
        yield "no action of a topic"
    for name in topics:
        policies = [
            policy["Properties"]["PolicyDocument"]
            for policy in resources.values()
            if policy["Type"] == "AWS::SNS::TopicPolicy"
            and f"<{name}>" in policy["Properties"]["Topics"]
        ]
        if not _admits(policies, {"sns:Publish"}, f"<{name}>"):
            yield f"{name}'s policy does not admit CloudWatch"
        key = resources[name]["Properties"].get("KmsMasterKeyId")
        if key is not None:
            policy = resources.get(key.strip("<>").removesuffix(".Arn"), {}).get("Properties", {})
            needed = {"kms:Decrypt", "kms:GenerateDataKey*"}
            if not _admits([policy["KeyPolicy"]] if policy else [], needed, "*"):
                yield f"{name}'s key does not admit CloudWatch"


def _admits(policies: list[dict[str, Any]], actions: set[str], resource: str) -> bool:
    statements = [statement for policy in policies for statement in policy["Statement"]]
    denied = [
        statement
        for statement in statements
        if statement["Effect"] == "Deny"
        and statement.get("Condition") != {"Bool": {"aws:SecureTransport": "false"}}
    ]
    return not denied and any(
        statement["Effect"] == "Allow"
        and statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        and statement["Resource"] == resource
        and statement.get("Condition") == OWN_ACCOUNT
        and actions <= {*_listed(statement["Action"])}
        for statement in statements
    )


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def test_every_alarm_reaches_its_topic_and_cloudwatch_may_publish_there(stack: Synthesis) -> None:
    assert stack.resources("AWS::CloudWatch::Alarm")
    assert cut_links(stack.template) == []


Cut = Callable[[dict[str, Any]], None]


def take_action(template: dict[str, Any]) -> None:
    del of_type(template, "AWS::CloudWatch::Alarm")["AlarmActions"]


def silence(template: dict[str, Any]) -> None:
    of_type(template, "AWS::CloudWatch::Alarm")["ActionsEnabled"] = False


def tell_a_queue(template: dict[str, Any]) -> None:
    (queue,) = (
        name
        for name in template["Resources"]
        if name.startswith("SendInvoiceQueue")
        and template["Resources"][name]["Type"] == "AWS::SQS::Queue"
    )
    of_type(template, "AWS::CloudWatch::Alarm")["AlarmActions"] = [{"Ref": queue}]


def take_policy(template: dict[str, Any]) -> None:
    of_type(template, "AWS::SNS::TopicPolicy")["Topics"] = []


def take_admission(template: dict[str, Any]) -> None:
    of_type(template, "AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"].pop()


def deny(template: dict[str, Any]) -> None:
    statements = of_type(template, "AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    statements[0].pop("Condition")


def admit_everybody(template: dict[str, Any]) -> None:
    statements = of_type(template, "AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    statements[-1].pop("Condition")


def take_snss_own_key(template: dict[str, Any]) -> None:
    of_type(template, "AWS::SNS::Topic")["KmsMasterKeyId"] = "alias/aws/sns"


def lock(template: dict[str, Any]) -> None:
    key_statements(template).pop()


def lock_half(template: dict[str, Any]) -> None:
    key_statements(template)[-1]["Action"].remove("kms:GenerateDataKey*")


def key_statements(template: dict[str, Any]) -> list[dict[str, Any]]:
    statements: list[dict[str, Any]] = of_type(template, "AWS::KMS::Key")["KeyPolicy"]["Statement"]
    assert statements[-1]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    return statements


def of_type(template: dict[str, Any], kind: str) -> dict[str, Any]:
    """The properties of the first such resource; alarms come before topics."""
    properties: dict[str, Any] = next(
        resource["Properties"]
        for resource in template["Resources"].values()
        if resource["Type"] == kind
    )
    return properties


@pytest.mark.parametrize(
    "cut",
    [
        take_action,
        silence,
        tell_a_queue,
        take_policy,
        take_admission,
        deny,
        admit_everybody,
        take_snss_own_key,
        lock,
        lock_half,
    ],
)
def test_the_walk_finds_whatever_link_is_cut(keyed: Synthesis, cut: Cut) -> None:
    template = json.loads(json.dumps(keyed.template))
    cut(template)
    assert cut_links(template)


# Topics


def test_topics_refuse_plain_http_and_nobody_else_is_admitted(stack: Synthesis) -> None:
    assert set(stack.resources("AWS::SNS::Topic")) == TOPICS
    for topic in TOPICS:
        refused, admitted = stack.statements(f"{topic}Policy")
        assert refused["Effect"] == "Deny"
        assert refused["Principal"] == "*"
        assert refused["Action"] == ["sns:Publish"]
        assert refused["Resource"] == [f"<{topic}>"]
        assert refused["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        assert admitted["Effect"] == "Allow"


def test_topics_are_encrypted_with_the_customers_key_or_not_at_all(stack: Synthesis) -> None:
    keys = stack.resources("AWS::KMS::Key")
    for topic in TOPICS:
        expected = "<Key.Arn>" if keys else None
        assert stack.properties(topic).get("KmsMasterKeyId") == expected


def test_a_mail_names_its_sender(prod: Synthesis) -> None:
    assert prod.properties("PageTopic")["DisplayName"] == "Redrive-prod page"
    assert prod.properties("NotifyTopic")["DisplayName"] == "Redrive-prod notify"


def test_the_context_subscribes_addresses(
    tmp_path_factory: pytest.TempPathFactory, dev: Synthesis
) -> None:
    synthesis = synthesize_app(
        tmp_path_factory.mktemp("mail"),
        page_email="ann@example.com, bob@example.com",
        notify_email="ann@example.com",
    )
    subscriptions = [
        subscription["Properties"]
        for subscription in synthesis.resources("AWS::SNS::Subscription").values()
    ]
    assert sorted((each["TopicArn"], each["Endpoint"]) for each in subscriptions) == [
        ("<NotifyTopic>", "ann@example.com"),
        ("<PageTopic>", "ann@example.com"),
        ("<PageTopic>", "bob@example.com"),
    ]
    assert {each["Protocol"] for each in subscriptions} == {"email"}
    assert dev.resources("AWS::SNS::Subscription") == {}

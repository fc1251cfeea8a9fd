"""The operator's functions: what they may do, and that what they may do is all that they need."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template

from stacks.job_spec import JobSpec
from stacks.stage import Stage
from tests.stacks.conftest import SHOWCASE
from tests.stacks.synthesis import (
    KEY_FOR_SENDERS,
    KEY_FOR_TABLES,
    PARAMETERS,
    VIA_DYNAMODB,
    Synthesis,
    allows,
    jobs_stack,
    readable,
    same,
    synthesize,
)

FUNCTIONS = ("Replay", "Inspect")


def both(of_job: str) -> list[str]:
    """`<{}Queue.Arn>` of both jobs of the showcase."""
    return [of_job.format(job) for job in ("SendInvoice", "BookSeat")]


REPLAY = [
    allows(
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
        on=both("<{}DeadLetterQueue.Arn>"),
    ),
    allows("sqs:GetQueueAttributes", "sqs:SendMessage", on=both("<{}Queue.Arn>")),
    allows("ssm:GetParameter", on=both(PARAMETERS + "<{}Parameter>")),
    allows("dynamodb:BatchGetItem", "dynamodb:GetItem", on="<IdempotencyTable.Arn>"),
    allows(
        "dynamodb:BatchGetItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        on="<JobsTable.Arn>",
    ),
    allows("logs:CreateLogStream", "logs:PutLogEvents", on="<ReplayLogGroup.Arn>"),
]

INSPECT = [
    allows(
        "sqs:ChangeMessageVisibility",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
        on=both("<{}DeadLetterQueue.Arn>"),
    ),
    allows("ssm:GetParameter", on=both(PARAMETERS + "<{}Parameter>")),
    allows(
        "dynamodb:BatchGetItem",
        "dynamodb:GetItem",
        on=("<IdempotencyTable.Arn>", "<JobsTable.Arn>"),
    ),
    allows("logs:CreateLogStream", "logs:PutLogEvents", on="<InspectLogGroup.Arn>"),
]

KEY_FOR_RECEIVERS = allows("kms:Decrypt", on="<Key.Arn>")
KEY_FOR_TABLE_READERS = allows(
    "kms:Decrypt", "kms:DescribeKey", on="<Key.Arn>", Condition=VIA_DYNAMODB
)


# Functions


def test_replay_and_inspect_are_two_handlers_of_one_asset_on_the_layer(dev: Synthesis) -> None:
    functions = {name: dev.properties(f"{name}Function") for name in FUNCTIONS}
    for name, function in functions.items():
        expected = {
            "Handler": f"replay.handler.{name.lower()}",
            "Runtime": "python3.13",
            "Architectures": ["arm64"],
            "Layers": ["<Layer>"],
            "MemorySize": 1769,
            "LoggingConfig": {"LogGroup": f"<{name}LogGroup>"},
            "Role": f"<{name}Role.Arn>",
        }
        assert {field: function[field] for field in expected} == expected
        assert {"TracingConfig", "FunctionName", "ReservedConcurrentExecutions"}.isdisjoint(
            function
        )
    assert functions["Replay"]["Code"] == functions["Inspect"]["Code"]
    assert functions["Replay"]["Code"] != dev.properties("SendEmailWorker")["Code"]


def test_a_replay_has_lambdas_longest_time_and_a_look_one_minute(dev: Synthesis) -> None:
    assert dev.properties("ReplayFunction")["Timeout"] == 900
    assert dev.properties("InspectFunction")["Timeout"] == 60


def test_replay_alone_may_invoke_itself_for_longer_than_lambda_lets_others(dev: Synthesis) -> None:
    recursive = {
        name: function["Properties"]["RecursiveLoop"]
        for name, function in dev.resources("AWS::Lambda::Function").items()
        if "RecursiveLoop" in function["Properties"]
    }
    assert recursive == {"ReplayFunction": "Allow"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_environment_is_exactly_what_replay_reads(showcase: Synthesis, name: str) -> None:
    assert showcase.properties(f"{name}Function")["Environment"]["Variables"] == {
        "REDRIVE_STAGE": "dev",
        "REDRIVE_JOBS": "send_invoice,book_seat",
        "REDRIVE_IDEMPOTENCY_TABLE": "<IdempotencyTable>",
        "REDRIVE_JOBS_TABLE": "<JobsTable>",
        "REDRIVE_REPLAY_LEASE_SECONDS": "60",
        "POWERTOOLS_SERVICE_NAME": name.lower(),
    }


@pytest.mark.parametrize(("lease", "seconds"), [("3", "3"), ("900", "60"), ("0.5", "0.5")])
def test_the_stages_lease_is_a_replays_where_it_is_shorter(
    lease: str, seconds: str, tmp_path: Path
) -> None:
    app, stack = jobs_stack(tmp_path, [], Stage.from_context({"lease_seconds": lease}))
    app.synth()
    synthesis = Synthesis(tmp_path / "out", stack.stack_name)
    for name in FUNCTIONS:
        variables = synthesis.properties(f"{name}Function")["Environment"]["Variables"]
        assert variables["REDRIVE_REPLAY_LEASE_SECONDS"] == seconds


def test_the_logs_of_a_replay_outlive_the_dead_letters(dev: Synthesis) -> None:
    kept = dev.properties("SendEmailDeadLetterQueue")["MessageRetentionPeriod"]
    for name in FUNCTIONS:
        assert dev.properties(f"{name}LogGroup")["RetentionInDays"] * 86_400 > kept


# Permissions


def policies_of(synthesis: Synthesis, name: str) -> dict[str, dict[str, Any]]:
    """All policies of the function's role, wherever they stand."""
    return {
        policy: resource["Properties"]
        for policy, resource in synthesis.resources(
            "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"
        ).items()
        if f"<{name}Role>" in resource["Properties"].get("Roles", [])
    }


def statements_of(synthesis: Synthesis, name: str) -> list[dict[str, Any]]:
    return [
        statement
        for policy in policies_of(synthesis, name)
        for statement in synthesis.statements(policy)
    ]


def test_replay_may_do_this_and_nothing_else(showcase: Synthesis, keyed: Synthesis) -> None:
    itself = allows("lambda:InvokeFunction", on="<ReplayFunction.Arn>")
    assert same(statements_of(showcase, "Replay"), [*REPLAY, itself])
    with_key = [*REPLAY, itself, KEY_FOR_SENDERS, KEY_FOR_TABLES]
    assert same(statements_of(keyed, "Replay"), with_key)


def test_inspect_may_do_this_and_nothing_else(showcase: Synthesis, keyed: Synthesis) -> None:
    assert same(statements_of(showcase, "Inspect"), INSPECT)
    with_key = [*INSPECT, KEY_FOR_RECEIVERS, KEY_FOR_TABLE_READERS]
    assert same(statements_of(keyed, "Inspect"), with_key)


def test_who_may_only_look_can_neither_send_nor_delete_nor_write(keyed: Synthesis) -> None:
    allowed = {action for each in statements_of(keyed, "Inspect") for action in each["Action"]}
    verbs = {action.partition(":")[2] for action in allowed - {"logs:CreateLogStream"}}
    changing = ("Send", "Delete", "Put", "Update", "Write", "PartiQL", "Invoke", "Encrypt")
    assert {verb for verb in verbs if verb.startswith(changing)} == {"PutLogEvents"}
    assert "*" not in "".join(allowed)


def test_no_role_may_purge_a_queue_and_these_two_have_no_wildcard(keyed: Synthesis) -> None:
    assert "PurgeQueue" not in keyed.path.read_text()
    for name in FUNCTIONS:
        for statement in statements_of(keyed, name):
            assert not [part for part in statement["Resource"] if "*" in part]


def test_what_replay_needs_to_go_on_is_no_circular_reference(tmp_path: Path) -> None:
    _, stack = jobs_stack(tmp_path, SHOWCASE, Stage(customer_managed_key=True))
    template = Template.from_stack(stack)  # refuses a template with a cycle
    (function,) = template.find_resources(
        "AWS::Lambda::Function", {"Properties": {"RecursiveLoop": "Allow"}}
    ).values()
    assert not [name for name in function["DependsOn"] if "GoOnPolicy" in name]
    assert [name for name in function["DependsOn"] if "RoleDefaultPolicy" in name]


# Many jobs: IAM counts characters.

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
INLINE_OF_A_ROLE, MANAGED, MANAGED_OF_A_ROLE = 10_240, 6_144, 10

# What a longest ARN of a queue has: `arn:aws-us-gov:sqs:us-gov-west-1:123456789012:`, and SQS's
# longest name.
ARN = "x" * (46 + 80)


# As many as fit into a stack, with the alarms of `dev`.
MOST = 33


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    specs = [JobSpec(f"job_{number:02}_".ljust(30, "x"), key="id") for number in range(MOST)]
    stage = Stage(customer_managed_key=True)
    return synthesize(tmp_path_factory.mktemp("many"), *specs, stage=stage)


def longest(value: Any) -> Any:
    """A part of a template with an ARN for each reference."""
    if isinstance(value, list):
        return [longest(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() & {"Ref", "Fn::GetAtt", "Fn::Join"}:
        return ARN
    return {key: longest(item) for key, item in value.items()}


def sizes(synthesis: Synthesis, name: str, policy_type: str) -> list[int]:
    """The characters of each such policy of the function's role; IAM counts no white space."""
    return [
        len(json.dumps(longest(policy["Properties"]["PolicyDocument"]), separators=(",", ":")))
        for policy in synthesis.template["Resources"].values()
        if policy["Type"] == policy_type
        and f"<{name}Role>" in readable(policy["Properties"].get("Roles", []))
    ]


def granted(synthesis: Synthesis, name: str) -> Iterator[tuple[str, str]]:
    for statement in statements_of(synthesis, name):
        for action in statement["Action"]:
            yield from ((action, resource) for resource in statement["Resource"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_policies_of_many_jobs_fit_into_iams_quotas(many: Synthesis, name: str) -> None:
    assert sum(sizes(many, name, "AWS::IAM::Policy")) <= INLINE_OF_A_ROLE
    managed = sizes(many, name, "AWS::IAM::ManagedPolicy")
    assert managed  # they do not fit into the role alone
    assert max(managed) <= MANAGED
    assert len(managed) <= MANAGED_OF_A_ROLE


def test_many_jobs_have_the_permissions_of_each(many: Synthesis) -> None:
    queues = [f"<{name}.Arn>" for name in many.resources("AWS::SQS::Queue")]
    dead = [queue for queue in queues if "DeadLetterQueue" in queue]
    sources = [queue for queue in queues if queue not in dead]
    assert (len(dead), len(sources)) == (MOST, MOST)
    replay, inspect = (sorted(granted(many, name)) for name in FUNCTIONS)
    for action, resources in (("ReceiveMessage", dead), ("DeleteMessage", dead)):
        assert [on for did, on in replay if did == f"sqs:{action}"] == sorted(resources)
    assert [on for did, on in replay if did == "sqs:SendMessage"] == sorted(sources)
    assert [on for did, on in inspect if did == "sqs:ReceiveMessage"] == sorted(dead)
    for grants in (replay, inspect):
        assert len([on for did, on in grants if did == "ssm:GetParameter"]) == MOST


def test_cdk_nag_finds_nothing_in_the_policies_of_many_jobs(many: Synthesis) -> None:
    for report in many.report["pluginReports"]:
        assert report["conclusion"] == "success", report
        assert [v for v in report["violations"] if v["severity"] != "info"] == []

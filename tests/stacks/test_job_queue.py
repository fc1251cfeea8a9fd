"""What one job becomes in the template."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from stacks.stage import Stage
from tests.stacks.conftest import SHOWCASE
from tests.stacks.synthesis import (
    KEY_FOR_SENDERS,
    KEY_FOR_TABLES,
    PARAMETERS,
    Synthesis,
    allows,
    identity_policies,
    jobs_stack,
    same,
)

ROOT_OF_OTHER_ACCOUNT = "arn:<AWS::Partition>:iam::210987654321:root"
OWN_ACCOUNT_ONLY = {"StringEquals": {"aws:SourceAccount": "<AWS::AccountId>"}}


# Queues


def test_a_queue_pair_is_derived_from_the_spec(dev: Synthesis) -> None:
    assert dev.properties("SendEmailQueue") == {
        "VisibilityTimeout": 360,
        "MessageRetentionPeriod": 4 * 86_400,
        "MaximumMessageSize": 1_048_576,
        "SqsManagedSseEnabled": True,
        "RedriveAllowPolicy": {"redrivePermission": "denyAll"},
        "RedrivePolicy": {
            "deadLetterTargetArn": "<SendEmailDeadLetterQueue.Arn>",
            "maxReceiveCount": 480,
        },
    }
    # No RedriveAllowPolicy, no name, and no dead-letter queue of its own.
    assert dev.properties("SendEmailDeadLetterQueue") == {
        "MessageRetentionPeriod": 14 * 86_400,
        "MaximumMessageSize": 1_048_576,
        "SqsManagedSseEnabled": True,
    }


def test_visibility_is_six_timeouts_and_the_window(showcase: Synthesis) -> None:
    assert showcase.properties("SendInvoiceWorker")["Timeout"] == 120
    assert showcase.properties("SendInvoiceQueue")["VisibilityTimeout"] == 6 * 120 + 5
    mapping = showcase.properties("SendInvoiceEventSourceMapping")
    assert mapping["MaximumBatchingWindowInSeconds"] == 5


def test_the_dead_letter_queues_type_follows_the_queues(showcase: Synthesis) -> None:
    for queue in ("BookSeatQueue", "BookSeatDeadLetterQueue"):
        assert showcase.properties(queue)["FifoQueue"] is True
        # CloudFormation adds .fifo to a name that it generates; a fixed one would need it.
        assert "QueueName" not in showcase.properties(queue)
    for queue in ("SendInvoiceQueue", "SendInvoiceDeadLetterQueue"):
        assert "FifoQueue" not in showcase.properties(queue)


def test_every_queue_refuses_plain_http(showcase: Synthesis) -> None:
    queues = showcase.resources("AWS::SQS::Queue")
    refusing = {
        policy["Properties"]["Queues"][0]
        for policy in showcase.resources("AWS::SQS::QueuePolicy").values()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
        and statement["Principal"] == {"AWS": "*"}
        and statement["Action"] == "sqs:*"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    }
    assert refusing == {f"<{name}>" for name in queues}
    assert len(queues) == 4


# Worker


def test_the_worker_runs_the_jobs_handler_on_the_layer(dev: Synthesis) -> None:
    worker = dev.properties("SendEmailWorker")
    expected = {
        "Handler": "send_email.handler.handler",
        "Runtime": "python3.13",
        "Architectures": ["arm64"],
        "Layers": ["<Layer>"],
        "Timeout": 60,
        "MemorySize": 512,
        "TracingConfig": {"Mode": "Active"},
        "LoggingConfig": {"LogGroup": "<SendEmailLogGroup>"},
        "Role": "<SendEmailWorkerRole.Arn>",
    }
    assert {name: worker[name] for name in expected} == expected
    # Lambda's default stops a job that publishes itself for ever; no name, so that it can change.
    assert {"RecursiveLoop", "FunctionName", "ReservedConcurrentExecutions"}.isdisjoint(worker)


def test_the_worker_waits_for_its_permissions(dev: Synthesis) -> None:
    depends_on = dev.resources()["SendEmailWorker"]["DependsOn"]
    assert any("WorkerRoleDefaultPolicy" in name for name in depends_on)


def test_the_environment_is_exactly_what_the_worker_reads(dev: Synthesis) -> None:
    assert dev.properties("SendEmailWorker")["Environment"]["Variables"] == {
        "REDRIVE_STAGE": "dev",
        "REDRIVE_JOB": "send_email",
        "REDRIVE_KEY": "email_id",
        "REDRIVE_QUEUE_URL": "<SendEmailQueue>",
        "REDRIVE_DEAD_LETTER_QUEUE_URL": "<SendEmailDeadLetterQueue>",
        "REDRIVE_IDEMPOTENCY_TABLE": "<IdempotencyTable>",
        "REDRIVE_JOBS_TABLE": "<JobsTable>",
        "REDRIVE_MAX_ATTEMPTS": "12",
        "REDRIVE_BACKOFF_BASE_SECONDS": "10",
        "REDRIVE_BACKOFF_CAP_SECONDS": "900",
        "REDRIVE_TIMEOUT_SECONDS": "60",
        "REDRIVE_VISIBILITY_TIMEOUT_SECONDS": "360",
        "REDRIVE_RETENTION_SECONDS": "345600",
        "REDRIVE_LEASE_SECONDS": "60",
        "REDRIVE_MAX_RECEIVES": "480",
        "REDRIVE_MAX_KILLS": "3",
        "REDRIVE_P99_SECONDS": "5",
        "REDRIVE_BATCH_CONCURRENCY": "10",
        "POWERTOOLS_SERVICE_NAME": "send_email",
        "SENDER": "no-reply@example.com",
    }


def test_the_environment_follows_the_spec(showcase: Synthesis) -> None:
    variables = showcase.properties("SendInvoiceWorker")["Environment"]["Variables"]
    assert variables["REDRIVE_MAX_ATTEMPTS"] == "8"
    assert variables["REDRIVE_BACKOFF_BASE_SECONDS"] == "0.5"
    assert variables["REDRIVE_BACKOFF_CAP_SECONDS"] == "300"
    assert variables["REDRIVE_P99_SECONDS"] == "2.5"
    assert variables["REDRIVE_VISIBILITY_TIMEOUT_SECONDS"] == "725"
    assert variables["REDRIVE_BATCH_CONCURRENCY"] == "16"
    assert variables["BUCKET"] == "invoices"
    seat = showcase.properties("BookSeatWorker")["Environment"]["Variables"]
    assert seat["REDRIVE_KEY"] == "join('/', [flight, seat])"
    assert showcase.properties("SendInvoiceWorker")["MemorySize"] == 1024


def test_logs_outlive_the_dead_letters_that_name_them(dev: Synthesis) -> None:
    days = dev.properties("SendEmailLogGroup")["RetentionInDays"]
    assert days * 86_400 > dev.properties("SendEmailDeadLetterQueue")["MessageRetentionPeriod"]


# Event source mapping


def test_the_mapping_is_enabled_and_reports_failures(dev: Synthesis) -> None:
    assert dev.properties("SendEmailEventSourceMapping") == {
        "EventSourceArn": "<SendEmailQueue.Arn>",
        "FunctionName": "<SendEmailWorker>",
        "Enabled": True,
        "BatchSize": 10,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": 10},
        "MetricsConfig": {"Metrics": ["EventCount"]},
    }


def test_the_mapping_follows_the_spec(showcase: Synthesis) -> None:
    mapping = showcase.properties("SendInvoiceEventSourceMapping")
    assert mapping["BatchSize"] == 100
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 50}
    seat = showcase.properties("BookSeatEventSourceMapping")
    assert seat["ScalingConfig"] == {"MaximumConcurrency": 2}


# Permissions


WORKER = [
    allows(
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
        on="<SendInvoiceQueue.Arn>",
    ),
    allows("sqs:SendMessage", on="<SendInvoiceDeadLetterQueue.Arn>"),
    allows(
        "dynamodb:BatchGetItem",
        "dynamodb:DeleteItem",
        "dynamodb:GetItem",
        "dynamodb:PartiQLInsert",
        "dynamodb:PartiQLUpdate",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        on="<IdempotencyTable.Arn>",
    ),
    allows(
        "dynamodb:BatchGetItem",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        on="<JobsTable.Arn>",
    ),
    allows("logs:CreateLogStream", "logs:PutLogEvents", on="<SendInvoiceLogGroup.Arn>"),
    allows(
        "s3:GetObject",
        "s3:Put*",
        on="arn:<AWS::Partition>:s3:::invoices-<AWS::AccountId>-<AWS::Region>/*",
    ),
    allows("xray:PutTelemetryRecords", "xray:PutTraceSegments", on="*"),
]

PUBLISHER = [
    allows("sqs:SendMessage", on="<SendInvoiceQueue.Arn>"),
    allows(
        "ssm:GetParameter",
        on=PARAMETERS + "<SendInvoiceParameter>",
    ),
]

OPERATORS = ("Replay", "Inspect")


def test_a_worker_may_do_this_and_nothing_else(showcase: Synthesis, keyed: Synthesis) -> None:
    policy = "SendInvoiceWorkerRoleDefaultPolicy"
    assert same(showcase.statements(policy), WORKER)
    assert same(keyed.statements(policy), [*WORKER, KEY_FOR_SENDERS, KEY_FOR_TABLES])


def test_a_publisher_may_do_this_and_nothing_else(showcase: Synthesis, keyed: Synthesis) -> None:
    assert same(showcase.statements("SendInvoicePublishPolicy"), PUBLISHER)
    assert same(keyed.statements("SendInvoicePublishPolicy"), [*PUBLISHER, KEY_FOR_SENDERS])


def test_there_are_no_other_identities_or_policies(showcase: Synthesis) -> None:
    jobs = ("SendInvoice", "BookSeat")
    assert set(showcase.resources("AWS::IAM::Role")) == {
        *(f"{job}WorkerRole" for job in jobs),
        *(f"{name}Role" for name in OPERATORS),
    }
    assert set(identity_policies(showcase)) == {
        *(f"{job}WorkerRoleDefaultPolicy" for job in jobs),
        *(f"{job}PublishPolicy" for job in jobs),
        *(f"{name}RoleDefaultPolicy" for name in OPERATORS),
        "ReplayGoOnPolicy",
    }
    for role in showcase.resources("AWS::IAM::Role").values():
        assert set(role["Properties"]) == {"AssumeRolePolicyDocument"}  # nothing managed by AWS
        (trust,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}


def test_granting_publish_gives_what_the_policy_gives(tmp_path: Path) -> None:
    stage = Stage(customer_managed_key=True)
    app, stack = jobs_stack(tmp_path, SHOWCASE[:1], stage)
    role = iam.Role(stack, "Api", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    stack.jobs["send_invoice"].grant_publish(role)
    app.synth()

    synthesis = Synthesis(tmp_path / "out", stage.stack_name)
    assert same(synthesis.statements("ApiDefaultPolicy"), [*PUBLISHER, KEY_FOR_SENDERS])


def test_a_role_of_another_stack_may_publish_and_the_stacks_do_not_need_each_other(
    tmp_path: Path,
) -> None:
    app, stack = jobs_stack(tmp_path, SHOWCASE[:1], Stage(customer_managed_key=True))
    service = Stack(app, "Service")
    role = iam.Role(service, "Api", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    stack.jobs["send_invoice"].grant_publish(role)
    app.synth()

    template = (tmp_path / "out" / "Service.template.json").read_text()
    for action in ("sqs:SendMessage", "ssm:GetParameter", "kms:GenerateDataKey"):
        assert action in template


def admitted(statements: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Who is allowed, and on what condition; one entry for each principal."""
    return sorted(
        (principal, statement.get("Condition"))
        for statement in statements
        if statement["Effect"] == "Allow" and "kms:*" not in statement["Action"]
        for kind in statement["Principal"].values()
        for principal in (kind if isinstance(kind, list) else [kind])
    )


PUBLISHERS = [
    (ROOT_OF_OTHER_ACCOUNT, None),
    ("events.amazonaws.com", OWN_ACCOUNT_ONLY),
    ("s3.amazonaws.com", OWN_ACCOUNT_ONLY),
    ("sns.amazonaws.com", OWN_ACCOUNT_ONLY),
]


def test_accounts_and_services_may_publish_where_the_spec_names_them(showcase: Synthesis) -> None:
    statements = showcase.statements("SendInvoiceQueuePolicy")
    assert admitted(statements) == PUBLISHERS
    for statement in statements:
        if statement["Effect"] == "Allow":
            assert statement["Action"] == ["sqs:SendMessage"]
            assert statement["Resource"] == ["<SendInvoiceQueue.Arn>"]
    for policy in ("BookSeatQueuePolicy", "SendInvoiceDeadLetterQueuePolicy"):
        assert admitted(showcase.statements(policy)) == []


def test_the_key_admits_the_publishers_of_its_queues_and_the_alarms(keyed: Synthesis) -> None:
    statements = keyed.statements("Key")
    alarms = ("cloudwatch.amazonaws.com", OWN_ACCOUNT_ONLY)
    assert admitted(statements) == sorted([*PUBLISHERS, alarms])
    for statement in statements:
        if admitted([statement]) not in ([], [alarms]):
            assert statement["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    account = [statement for statement in statements if statement["Action"] == ["kms:*"]]
    assert [statement["Principal"] for statement in account] == [
        {"AWS": "arn:<AWS::Partition>:iam::<AWS::AccountId>:root"}
    ]


# Everything under the key: each permission has the key's permission that it needs, and no other.

DATA_PLANE_KEY = set(KEY_FOR_TABLES["Action"])
READERS_KEY = {"kms:Decrypt", "kms:DescribeKey"}
NEEDS = {
    "sqs:SendMessage": {"kms:Decrypt", "kms:GenerateDataKey"},
    "sqs:ReceiveMessage": {"kms:Decrypt"},
    "dynamodb:GetItem": READERS_KEY,
    "dynamodb:PutItem": DATA_PLANE_KEY,
    "dynamodb:UpdateItem": DATA_PLANE_KEY,
    "dynamodb:DeleteItem": DATA_PLANE_KEY,
    "dynamodb:BatchGetItem": READERS_KEY,
    "dynamodb:PartiQLInsert": DATA_PLANE_KEY,
    "dynamodb:PartiQLUpdate": DATA_PLANE_KEY,
}


def key_gaps(template: Synthesis) -> Iterator[str]:
    """Identity policies whose key permissions are not exactly those that the others need."""
    for name, statements in identity_policies(template).items():
        actions = {action for statement in statements for action in statement["Action"]}
        for service in ("sqs", "dynamodb"):
            needed = {
                need
                for action in actions
                if action.startswith(service)
                for need in NEEDS.get(action, set())
            }
            given = {
                action
                for statement in statements
                if statement["Resource"] == ["<Key.Arn>"] and via(statement) in (None, service)
                for action in statement["Action"]
            }
            if not needed <= given:
                yield f"{name} lacks {needed - given} for {service}"
            if via_needed := given - needed - {"kms:Decrypt", "kms:GenerateDataKey"}:
                yield f"{name} has {via_needed} for nothing"


def via(statement: dict[str, Any]) -> str | None:
    condition = statement.get("Condition", {}).get("StringEquals", {}).get("kms:ViaService")
    return condition.split(".")[0] if condition else None


def test_whoever_uses_a_queue_or_a_table_may_use_its_key(keyed: Synthesis) -> None:
    assert len(identity_policies(keyed)) == 7
    assert list(key_gaps(keyed)) == []


@pytest.mark.parametrize(
    "policy", ["SendInvoicePublishPolicy", "SendInvoiceWorkerRoleDefaultPolicy"]
)
@pytest.mark.parametrize("action", ["kms:Decrypt", "kms:GenerateDataKey"])
def test_the_walk_over_the_key_finds_what_is_taken_away(
    keyed: Synthesis, policy: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = json.loads(json.dumps(keyed.template))
    (resource,) = (value for name, value in broken["Resources"].items() if name.startswith(policy))
    for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
        if "kms:Decrypt" in statement["Action"]:
            statement["Action"].remove(action)
    synthesis = Synthesis(keyed.folder, keyed.stack_name)
    synthesis.__dict__["template"] = broken
    assert any(policy in gap and action in gap for gap in key_gaps(synthesis))


def test_one_rotating_key_encrypts_every_queue(keyed: Synthesis, showcase: Synthesis) -> None:
    assert keyed.properties("Key")["EnableKeyRotation"] is True
    for queue in keyed.resources("AWS::SQS::Queue").values():
        assert queue["Properties"]["KmsMasterKeyId"] == "<Key.Arn>"
    assert showcase.resources("AWS::KMS::Key") == {}


def test_no_permission_is_for_every_resource_but_x_rays(keyed: Synthesis) -> None:
    for statements in identity_policies(keyed).values():
        wide = [statement for statement in statements if "*" in statement["Resource"]]
        assert all(action.startswith("xray:") for s in wide for action in s["Action"])


# Discovery


def test_a_publisher_finds_all_that_it_must_know_under_one_name(showcase: Synthesis) -> None:
    parameter = showcase.properties("SendInvoiceParameter")
    assert parameter["Name"] == "/redrive/dev/send_invoice"
    assert parameter["Type"] == "String"
    assert json.loads(parameter["Value"]) == {
        "version": 1,
        "job": "send_invoice",
        "key": "invoice_id",
        "queues": {"normal": "<SendInvoiceQueue>"},
        "dead_letter_queue": "<SendInvoiceDeadLetterQueue>",
        "fifo": False,
        "limits": {"max_message_bytes": 1_048_576, "max_replays": 5},
    }
    seat = json.loads(showcase.properties("BookSeatParameter")["Value"])
    assert seat["fifo"] is True
    assert seat["key"] == "join('/', [flight, seat])"
    assert seat["limits"]["max_replays"] == 3


# Outage


def test_synth_tells_the_outage_that_each_jobs_retries_survive(showcase: Synthesis) -> None:
    # Upper ends of the first one: 0.5 1 2 4 8 16 32.
    assert showcase.told() == [
        "send_invoice survives an outage of 32 s on average, 64 s at most (8 attempts)",
        "book_seat survives an outage of 41 min on average, 81 min at most (12 attempts)",
    ]

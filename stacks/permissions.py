"""Policy statements, each the least that its purpose needs.

CDK's own grants give more (`grant_consume_messages` adds GetQueueUrl) or less (a worker's backoff
needs the key of the dead-letter queue too), and spread over many statements.
"""

from collections.abc import Iterable
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm

from stacks.job_spec import Allow

# To send, SQS makes a data key and reads it back; to receive, it only reads.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html
KEY_FOR_SENDERS = ("kms:Decrypt", "kms:GenerateDataKey")
KEY_FOR_RECEIVERS = ("kms:Decrypt",)

# What a service that publishes to an encrypted topic needs, CloudWatch among them.
# https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html
KEY_FOR_ALARMS = ("kms:Decrypt", "kms:GenerateDataKey*")

# What DynamoDB does to the key in its caller's name; CreateGrant is for whoever makes the table.
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.usagenotes.html
KEY_FOR_TABLES = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
# What CDK's own `grant_read_data` gives.
KEY_FOR_TABLE_READERS = ("kms:Decrypt", "kms:DescribeKey")


def allow(actions: Iterable[str], *resources: str) -> iam.PolicyStatement:
    """An identity's permission to do `actions` to `resources`."""
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))


def use_queue(queue: sqs.IQueue, *actions: str) -> iam.PolicyStatement:
    """To do `actions`, like `ReceiveMessage`, with messages of the queue, one or ten at a time."""
    return allow((f"sqs:{action}" for action in actions), queue.queue_arn)


def consume(queue: sqs.IQueue) -> iam.PolicyStatement:
    """What the poller does in the worker's name, the worker's leases and backoff, and a replay."""
    actions = ("ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes")
    return use_queue(queue, *actions)


def send(queue: sqs.IQueue) -> iam.PolicyStatement:
    """To send messages."""
    return use_queue(queue, "SendMessage")


def read_parameter(parameter: ssm.IStringParameter) -> iam.PolicyStatement:
    """To look up where a job's queues are."""
    return allow(["ssm:GetParameter"], parameter.parameter_arn)


def use_table(table: dynamodb.ITable, *actions: str) -> iam.PolicyStatement:
    """To do `actions`, like `GetItem`, with items of the table."""
    return allow((f"dynamodb:{action}" for action in actions), table.table_arn)


def write_logs(log_group: logs.ILogGroup) -> iam.PolicyStatement:
    """To write to this log group, which exists already; the ARN covers its streams."""
    return allow(["logs:CreateLogStream", "logs:PutLogEvents"], log_group.log_group_arn)


def use_key(key: kms.IKey, actions: Iterable[str]) -> iam.PolicyStatement:
    """To have SQS use the key for messages."""
    return allow(actions, key.key_arn)


def use_key_for_tables(
    key: kms.IKey, actions: Iterable[str] = KEY_FOR_TABLES
) -> iam.PolicyStatement:
    """To have DynamoDB use the key for items, and nobody else."""
    statement = use_key(key, actions)
    via = f"dynamodb.{Stack.of(key).region}.{Stack.of(key).url_suffix}"
    statement.add_condition("StringEquals", {"kms:ViaService": via})
    return statement


def own(permission: Allow, stack: Stack) -> iam.PolicyStatement:
    """A job's own permission, with the deployment's partition, region and account filled in."""
    places = {"partition": stack.partition, "region": stack.region, "account": stack.account}
    return allow(permission.actions, *(_fill(arn, places) for arn in permission.resources))


def _fill(arn: str, places: dict[str, str]) -> str:
    for name, value in places.items():
        arn = arn.replace(f"{{{name}}}", value)
    return arn


def wildcards(statement: iam.PolicyStatement, stack: Stack) -> list[str]:
    """The wildcards in a statement as cdk-nag names them: `Resource::arn:<AWS::Partition>:...*`."""
    actions = [f"Action::{action}" for action in statement.actions]
    resources = [f"Resource::{_nag_text(stack.resolve(arn))}" for arn in statement.resources]
    return [found for found in actions + resources if "*" in found]


def _nag_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return f"<{value['Ref']}>"
    return "".join(_nag_text(part) for part in value["Fn::Join"][1])


def publisher_principal(publisher: str, account: str) -> iam.PrincipalBase:
    """A publisher: another account, or a service that acts for this account alone."""
    if publisher.isdigit():
        return iam.AccountPrincipal(publisher)
    # Else anybody's topic, rule or bucket could send here: the confused deputy.
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/confused-deputy.html
    own_account = {"StringEquals": {"aws:SourceAccount": account}}
    return iam.PrincipalWithConditions(
        iam.ServicePrincipal(f"{publisher}.amazonaws.com"), own_account
    )

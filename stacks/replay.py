"""`Replay` and `Inspect`: the operator's functions for the dead letters of every job.

Two functions with one code, so that IAM can let somebody look who must not act.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks import permissions
from stacks.catalogue import FUNCTIONS
from stacks.functions import create_function, create_log_group, seconds
from stacks.job_queue import JobQueue, Shared

FOLDER = FUNCTIONS / "replay"

# One vCPU, as much as the scan's threads can use: Python runs one of them at a time.
# https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
_MEMORY_MIB = 1769

# How long a run that was killed keeps the next one from its dead-letter queue.
_LEASE = timedelta(seconds=60)

_READ = ("BatchGetItem", "GetItem")


class Replay(Construct):
    """Sends dead letters to their queues again, or deletes them, and writes down what it did."""

    def __init__(
        self, scope: Construct, construct_id: str, *, jobs: Collection[JobQueue], shared: Shared
    ) -> None:
        """Create the function of `jobs`, which are all of the stage's."""
        super().__init__(scope, construct_id)
        role = _create_role(self, _replay_statements(jobs, shared))
        self.function = _create_function(
            self,
            "replay",
            description=f"Replays dead letters of {shared.stage.stack_name}",
            jobs=jobs,
            shared=shared,
            role=role,
            # Lambda's longest: a run that needs longer goes on in another invocation.
            timeout=Duration.minutes(15),
            # That one is asynchronous and of the function itself, and counts its own hops; Lambda
            # would take it for a loop and stop it at about the 16th.
            # https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )
        # Not in the role's own policy: the function waits for that one, which would name it.
        iam.Policy(
            self,
            "GoOnPolicy",
            roles=[role],
            statements=[permissions.allow(["lambda:InvokeFunction"], self.function.function_arn)],
        )


class Inspect(Construct):
    """Lists dead letters; it can neither send nor delete nor write."""

    def __init__(
        self, scope: Construct, construct_id: str, *, jobs: Collection[JobQueue], shared: Shared
    ) -> None:
        """Create the function of `jobs`, which are all of the stage's."""
        super().__init__(scope, construct_id)
        self.function = _create_function(
            self,
            "inspect",
            description=f"Lists dead letters of {shared.stage.stack_name}",
            jobs=jobs,
            shared=shared,
            role=_create_role(self, _inspect_statements(jobs, shared)),
            # The operator waits for the answer.
            timeout=Duration.minutes(1),
        )


def _create_role(scope: Construct, statements: Iterable[iam.PolicyStatement]) -> iam.Role:
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    # A statement for each queue: CDK puts together what fits, and moves what passes the 10,240
    # characters of a role's inline policies, from some 20 jobs on, into managed ones.
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
    for statement in statements:
        role.add_to_policy(statement)
    return role


def _create_function(
    scope: Construct,
    entry: str,
    *,
    jobs: Collection[JobQueue],
    shared: Shared,
    role: iam.Role,
    **only_this: Any,
) -> lambda_.Function:
    log_group = create_log_group(scope, stage=shared.stage)
    role.add_to_policy(permissions.write_logs(log_group))
    # No X-Ray: the messages of one run belong to many traces, none of them its own.
    return create_function(
        scope,
        "Function",
        folder=FOLDER,
        entry=entry,
        layer=shared.layer,
        role=role,
        memory_size=_MEMORY_MIB,
        environment=_environment(entry, jobs, shared),
        log_group=log_group,
        **only_this,
    )


def _environment(entry: str, jobs: Collection[JobQueue], shared: Shared) -> dict[str, str]:
    """The functions' settings, as `functions/replay` reads them.

    The jobs' names alone: Lambda's 4 KB would end at some 20 jobs' URLs, which SSM tells.
    https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
    """
    return {
        "REDRIVE_STAGE": shared.stage.name,
        "REDRIVE_JOBS": ",".join(job.spec.name for job in jobs),
        "REDRIVE_IDEMPOTENCY_TABLE": shared.tables.idempotency.table_name,
        "REDRIVE_JOBS_TABLE": shared.tables.jobs.table_name,
        "REDRIVE_REPLAY_LEASE_SECONDS": seconds(min(_LEASE, shared.stage.lease or _LEASE)),
        "POWERTOOLS_SERVICE_NAME": entry,
    }


def _replay_statements(jobs: Collection[JobQueue], shared: Shared) -> Iterator[iam.PolicyStatement]:
    """All that Replay may do, except write logs and go on."""
    for job in jobs:
        yield permissions.consume(job.dead_letter_queue)
        yield permissions.use_queue(job.queue, "SendMessage", "GetQueueAttributes")
        yield permissions.read_parameter(job.parameter)
    yield permissions.use_table(shared.tables.idempotency, *_READ)
    yield permissions.use_table(shared.tables.jobs, *_READ, "PutItem", "UpdateItem")
    if shared.key:
        yield permissions.use_key(shared.key, permissions.KEY_FOR_SENDERS)
        yield permissions.use_key_for_tables(shared.key)


def _inspect_statements(
    jobs: Collection[JobQueue], shared: Shared
) -> Iterator[iam.PolicyStatement]:
    """All that Inspect may do, except write logs. SQS shows a message to who receives it alone."""
    for job in jobs:
        yield permissions.use_queue(
            job.dead_letter_queue, "ReceiveMessage", "ChangeMessageVisibility", "GetQueueAttributes"
        )
        yield permissions.read_parameter(job.parameter)
    yield permissions.use_table(shared.tables.idempotency, *_READ)
    yield permissions.use_table(shared.tables.jobs, *_READ)
    if shared.key:
        yield permissions.use_key(shared.key, permissions.KEY_FOR_RECEIVERS)
        yield permissions.use_key_for_tables(shared.key, permissions.KEY_FOR_TABLE_READERS)

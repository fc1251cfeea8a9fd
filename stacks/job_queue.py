"""`JobQueue`: all that one job needs in AWS, derived from its `JobSpec`."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from aws_cdk import Annotations, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from stacks import permissions
from stacks.catalogue import Job
from stacks.functions import create_function, create_log_group, seconds
from stacks.job_rules import SOURCE_RETENTION
from stacks.job_spec import DEAD_LETTER_RETENTION
from stacks.rules import acknowledge
from stacks.stage import Stage
from stacks.tables import Tables

# SQS's maximum since August 2025. Said for both queues: a queue from before may still hold 256 KiB,
# and what fits into the source must fit into the dead-letter queue.
MAX_MESSAGE_BYTES = 1_048_576


_IDEMPOTENCY_ACTIONS = (
    "BatchGetItem",
    "GetItem",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    # The claims and completions of a batch, by one BatchExecuteStatement.
    "PartiQLInsert",
    "PartiQLUpdate",
)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What all jobs of a deployment have in common."""

    stage: Stage
    tables: Tables
    layer: lambda_.ILayerVersion
    key: kms.Key | None
    """The customer-managed key, when the stage asks for one."""


class JobQueue(Construct):
    """A queue and its dead-letter queue, the worker that empties it, and who may fill it.

    The children's ids are part of the contract: a queue under another id is a new, empty queue, and
    the old one is deleted with the messages in it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, job: Job, shared: Shared) -> None:
        """Create everything but outputs; those are the stack's to decide."""
        super().__init__(scope, construct_id)
        self.spec = shared.stage.shorten(job.spec)
        self._shared = shared

        self.dead_letter_queue = self._create_dead_letter_queue()
        self.queue = self._create_queue()
        self.log_group = create_log_group(self, stage=shared.stage)
        self.worker = self._create_worker(job)
        self.event_source_mapping = self._create_event_source_mapping()
        self.parameter = self._create_parameter()
        self.publish_policy = self._create_publish_policy()

        self._admit_publishers()
        self._tell_outage()

    def grant_publish(self, grantee: iam.IGrantable) -> None:
        """Let an identity of this account look the queue up and send to it."""
        for statement in self._publish_statements():
            grantee.grant_principal.add_to_principal_policy(statement)

    def _create_dead_letter_queue(self) -> sqs.Queue:
        # No redrive allow policy: naming the source queue in it would be a circular reference.
        queue = self._create_sqs_queue("DeadLetterQueue", DEAD_LETTER_RETENTION)
        acknowledge(queue, "SQS3", "It is a dead-letter queue itself.")
        return queue

    def _create_queue(self) -> sqs.Queue:
        return self._create_sqs_queue(
            "Queue",
            SOURCE_RETENTION,
            visibility_timeout=_duration(self.spec.visibility_timeout),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letter_queue, max_receive_count=self.spec.max_receive_count
            ),
            redrive_allow_policy=sqs.RedriveAllowPolicy(
                redrive_permission=sqs.RedrivePermission.DENY_ALL
            ),
        )

    def _create_sqs_queue(
        self, construct_id: str, retention: timedelta, **only_this: Any
    ) -> sqs.Queue:
        key = self._shared.key
        return sqs.Queue(
            self,
            construct_id,
            # Not False: CloudFormation has only true or nothing.
            fifo=self.spec.fifo or None,
            retention_period=_duration(retention),
            max_message_size_bytes=MAX_MESSAGE_BYTES,
            enforce_ssl=True,
            encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=key,
            removal_policy=self._shared.stage.removal_policy,
            **only_this,
        )

    def _create_worker(self, job: Job) -> lambda_.Function:
        return create_function(
            self,
            "Worker",
            description=f"Runs the {self.spec.name} jobs of {self._shared.stage.stack_name}",
            folder=job.folder,
            layer=self._shared.layer,
            role=self._create_role(),
            timeout=_duration(self.spec.timeout),
            memory_size=self.spec.memory_mib,
            environment=self._environment(),
            log_group=self.log_group,
            tracing=lambda_.Tracing.ACTIVE,
        )

    def _create_role(self) -> iam.Role:
        role = iam.Role(self, "WorkerRole", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        for statement in self._worker_statements():
            role.add_to_policy(statement)
        reason = "X-Ray has no resources to name: PutTraceSegments takes * alone."
        acknowledge(role, "IAM5[Resource::*]", reason)
        for allowed in self.spec.permissions:
            statement = permissions.own(allowed, Stack.of(self))
            for wildcard in permissions.wildcards(statement, Stack.of(self)):
                acknowledge(role, f"IAM5[{wildcard}]", allowed.wildcards)
        return role

    def _worker_statements(self) -> list[iam.PolicyStatement]:
        """All that a worker may do, except X-Ray's two actions, which CDK adds by itself."""
        tables, key = self._shared.tables, self._shared.key
        stack = Stack.of(self)
        statements = [
            permissions.consume(self.queue),
            permissions.send(self.dead_letter_queue),
            permissions.use_table(tables.idempotency, *_IDEMPOTENCY_ACTIONS),
            permissions.use_table(tables.jobs, "BatchGetItem", "PutItem", "UpdateItem"),
            permissions.write_logs(self.log_group),
        ]
        if key:
            # One key: what sending to the dead-letter queue needs covers receiving.
            statements.append(permissions.use_key(key, permissions.KEY_FOR_SENDERS))
            statements.append(permissions.use_key_for_tables(key))
        return statements + [permissions.own(allowed, stack) for allowed in self.spec.permissions]

    def _environment(self) -> dict[str, str]:
        """The worker's settings, as `redrive.worker` reads them, and the job's own."""
        spec, tables = self.spec, self._shared.tables
        return {
            "REDRIVE_STAGE": self._shared.stage.name,
            "REDRIVE_JOB": spec.name,
            "REDRIVE_KEY": spec.key,
            "REDRIVE_QUEUE_URL": self.queue.queue_url,
            "REDRIVE_DEAD_LETTER_QUEUE_URL": self.dead_letter_queue.queue_url,
            "REDRIVE_IDEMPOTENCY_TABLE": tables.idempotency.table_name,
            "REDRIVE_JOBS_TABLE": tables.jobs.table_name,
            "REDRIVE_MAX_ATTEMPTS": str(spec.max_attempts),
            "REDRIVE_BACKOFF_BASE_SECONDS": seconds(spec.backoff_base),
            "REDRIVE_BACKOFF_CAP_SECONDS": seconds(spec.backoff_cap),
            "REDRIVE_TIMEOUT_SECONDS": seconds(spec.timeout),
            "REDRIVE_VISIBILITY_TIMEOUT_SECONDS": seconds(spec.visibility_timeout),
            "REDRIVE_RETENTION_SECONDS": seconds(SOURCE_RETENTION),
            "REDRIVE_LEASE_SECONDS": seconds(spec.lease),
            "REDRIVE_MAX_RECEIVES": str(spec.max_receive_count),
            "REDRIVE_MAX_KILLS": str(spec.max_kills),
            "REDRIVE_P99_SECONDS": seconds(spec.p99),
            "REDRIVE_BATCH_CONCURRENCY": str(spec.batch_concurrency),
            "POWERTOOLS_SERVICE_NAME": spec.name,
            **spec.environment,
        }

    def _create_event_source_mapping(self) -> lambda_.EventSourceMapping:
        window = self.spec.batching_window
        # Not SqsEventSource: it adds CDK's wider grants to the role.
        return lambda_.EventSourceMapping(
            self,
            "EventSourceMapping",
            target=self.worker,
            event_source_arn=self.queue.queue_arn,
            # The default, said because `stacks.rules` refuses a mapping that does not say it.
            enabled=True,
            batch_size=self.spec.batch_size,
            max_batching_window=_duration(window) if window else None,
            max_concurrency=self.spec.max_concurrency,
            report_batch_item_failures=True,
            metrics_config=lambda_.MetricsConfig(metrics=[lambda_.MetricType.EVENT_COUNT]),
        )

    def _create_parameter(self) -> ssm.StringParameter:
        """What a publisher must know, at a name that it can tell from the stage and the job."""
        stack = Stack.of(self)
        return ssm.StringParameter(
            self,
            "Parameter",
            parameter_name=f"/redrive/{self._shared.stage.name}/{self.spec.name}",
            description=f"Where and how to publish {self.spec.name} jobs",
            string_value=stack.to_json_string(
                {
                    "version": 1,
                    "job": self.spec.name,
                    "key": self.spec.key,
                    "queues": {"normal": self.queue.queue_url},
                    "dead_letter_queue": self.dead_letter_queue.queue_url,
                    "fifo": self.spec.fifo,
                    "limits": {
                        "max_message_bytes": MAX_MESSAGE_BYTES,
                        "max_replays": self.spec.max_replays,
                    },
                }
            ),
        )

    def _create_publish_policy(self) -> iam.ManagedPolicy:
        return iam.ManagedPolicy(
            self,
            "PublishPolicy",
            description=f"Publish {self.spec.name} jobs to {self._shared.stage.stack_name}",
            statements=self._publish_statements(),
        )

    def _publish_statements(self) -> list[iam.PolicyStatement]:
        statements = [
            permissions.send(self.queue),
            permissions.read_parameter(self.parameter),
        ]
        if self._shared.key:
            statements.append(permissions.use_key(self._shared.key, permissions.KEY_FOR_SENDERS))
        return statements

    def _admit_publishers(self) -> None:
        """Name those whom no identity policy of this account reaches on the queue and its key."""
        for publisher in self.spec.publishers:
            principal = permissions.publisher_principal(publisher, Stack.of(self).account)
            self.queue.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[principal],
                    actions=["sqs:SendMessage"],
                    resources=[self.queue.queue_arn],
                )
            )
            if self._shared.key:
                self._shared.key.add_to_resource_policy(
                    iam.PolicyStatement(
                        principals=[principal],
                        actions=list(permissions.KEY_FOR_SENDERS),
                        resources=["*"],  # In a key's policy this is the key.
                    )
                )

    def _tell_outage(self) -> None:
        mean, longest = (
            _minutes(window) for window in (self.spec.retry_window_mean, self.spec.retry_window_max)
        )
        Annotations.of(self).add_info_v2(
            "redrive:outage",
            f"{self.spec.name} survives an outage of {mean} on average, {longest} at most"
            f" ({self.spec.max_attempts} attempts)",
        )


def _duration(value: timedelta) -> Duration:
    return Duration.seconds(value // timedelta(seconds=1))


def _minutes(value: timedelta) -> str:
    if value < timedelta(minutes=2):
        return f"{value.total_seconds():.0f} s"
    return f"{value / timedelta(minutes=1):.0f} min"

"""The stack, as a table of contents: what all jobs share, one loop over the catalogue, outputs."""

from typing import Any

from aws_cdk import CfnOutput, Stack, Validations
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks import assets
from stacks.alarms import create_job_alarms, create_replay_alarms
from stacks.catalogue import Catalogue
from stacks.dashboard import create_dashboard
from stacks.job_queue import JobQueue, Shared
from stacks.metrics import JobMetrics
from stacks.replay import Inspect, Replay
from stacks.rules import DeliveryRules
from stacks.stage import Stage
from stacks.tables import create_tables
from stacks.topics import create_topics


class JobsStack(Stack):
    """All jobs of one catalogue in one stage."""

    def __init__(
        self, scope: Construct, *, stage: Stage, catalogue: Catalogue, **stack: Any
    ) -> None:
        """Create the stack `Redrive-<stage>`; further arguments are those of `aws_cdk.Stack`."""
        super().__init__(
            scope,
            stage.stack_name,
            # CloudFormation takes 1 MB, and white space is a quarter of it: see `stacks.alarms`.
            suppress_template_indentation=True,
            **stack,
        )
        key = self._create_key(stage) if stage.customer_managed_key else None
        tables = create_tables(self, stage=stage, key=key)
        shared = Shared(stage=stage, tables=tables, layer=self._create_layer(), key=key)

        self.jobs = {
            job.spec.name: JobQueue(self, job.spec.pascal_name, job=job, shared=shared)
            for job in catalogue.jobs
        }
        self.replay = Replay(self, "Replay", jobs=self.jobs.values(), shared=shared)
        self.inspect = Inspect(self, "Inspect", jobs=self.jobs.values(), shared=shared)

        topics = create_topics(self, stage=stage, key=key)
        metrics = [JobMetrics(job, stage) for job in self.jobs.values()]
        pages = [alarm for job in metrics for alarm in create_job_alarms(job, topics)]
        create_replay_alarms(self.replay, metrics, topics)
        dashboard = create_dashboard(self, metrics, pages)

        for job in self.jobs.values():
            self._output_job(job)
        self._output("ReplayFunctionName", self.replay.function.function_name)
        self._output("InspectFunctionName", self.inspect.function.function_name)
        self._output("JobsTableName", tables.jobs.table_name)
        self._output("IdempotencyTableName", tables.idempotency.table_name)
        self._output("PageTopicArn", topics.page.topic_arn)
        self._output("NotifyTopicArn", topics.notify.topic_arn)
        self._output("DashboardName", dashboard.dashboard_name)

        Validations.of(self.node.root).add_plugins(DeliveryRules())

    def _create_key(self, stage: Stage) -> kms.Key:
        return kms.Key(
            self,
            "Key",
            description=f"Queues, tables and topics of {stage.stack_name}",
            enable_key_rotation=True,
            removal_policy=stage.removal_policy,
        )

    def _create_layer(self) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            "Layer",
            description="The worker's dependencies beside boto3",
            code=assets.layer_code(),
            compatible_runtimes=[assets.RUNTIME],
        )

    def _output_job(self, job: JobQueue) -> None:
        name = job.spec.pascal_name
        self._output(f"{name}QueueUrl", job.queue.queue_url)
        self._output(f"{name}DeadLetterQueueUrl", job.dead_letter_queue.queue_url)
        self._output(f"{name}WorkerName", job.worker.function_name)
        self._output(f"{name}PublishPolicyArn", job.publish_policy.managed_policy_arn)

    def _output(self, name: str, value: str) -> None:
        CfnOutput(self, name, value=value)

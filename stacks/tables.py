"""The two tables that all jobs share."""

from dataclasses import dataclass

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.stage import Stage

_ID = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
_RECORD = dynamodb.Attribute(name="record", type=dynamodb.AttributeType.STRING)


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Where the worker keeps what it must not forget."""

    idempotency: dynamodb.Table
    """One item a job: that it runs, or has run, and with what result. The layout is Powertools'."""
    jobs: dynamodb.Table
    """Attempts and causes of failed jobs; status of those that ask to be tracked."""


def create_tables(scope: Construct, *, stage: Stage, key: kms.IKey | None) -> Tables:
    """Both tables, their ids part of the contract: a table under a new id is a new, empty table."""
    return Tables(
        idempotency=_table(scope, "IdempotencyTable", stage=stage, key=key),
        jobs=_table(scope, "JobsTable", stage=stage, key=key, sort_key=_RECORD),
    )


def _table(
    scope: Construct,
    construct_id: str,
    *,
    stage: Stage,
    key: kms.IKey | None,
    sort_key: dynamodb.Attribute | None = None,
) -> dynamodb.Table:
    # Not TableV2: with a customer-managed key that one wants the region fixed at synth.
    return dynamodb.Table(
        scope,
        construct_id,
        partition_key=_ID,
        sort_key=sort_key,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute="expiration",
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if key else None,
        encryption_key=key,
        deletion_protection=stage.retains_data,
        removal_policy=stage.removal_policy,
    )

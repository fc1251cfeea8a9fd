"""The two topics that alarms tell: one to wake somebody, one to read in the morning."""

from collections.abc import Iterable
from dataclasses import dataclass

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from stacks import permissions
from stacks.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Topics:
    """Whom an alarm tells."""

    page: sns.Topic
    notify: sns.Topic


def create_topics(scope: Construct, *, stage: Stage, key: kms.Key | None) -> Topics:
    """Both topics, in every stage; the key, if there is one, lets CloudWatch publish to them."""
    if key:
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[_cloudwatch(scope)],
                actions=list(permissions.KEY_FOR_ALARMS),
                resources=["*"],  # In a key's policy this is the key.
            )
        )
    return Topics(
        page=_topic(scope, "PageTopic", f"{stage.stack_name} page", key, stage.page_emails),
        notify=_topic(scope, "NotifyTopic", f"{stage.stack_name} notify", key, stage.notify_emails),
    )


def _topic(
    scope: Construct, construct_id: str, name: str, key: kms.Key | None, emails: Iterable[str]
) -> sns.Topic:
    topic = sns.Topic(
        scope,
        construct_id,
        display_name=name,
        # Never SNS's own key, `alias/aws/sns`: its policy cannot be changed to admit CloudWatch.
        master_key=key,
        enforce_ssl=True,
    )
    # With the policy that refuses plain HTTP the one goes that SNS gives a topic by default.
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[_cloudwatch(scope)],
            actions=["sns:Publish"],
            resources=[topic.topic_arn],
        )
    )
    for email in emails:
        topic.add_subscription(subscriptions.EmailSubscription(email))
    return topic


def _cloudwatch(scope: Construct) -> iam.PrincipalBase:
    """The alarms of this account alone."""
    return permissions.publisher_principal("cloudwatch", Stack.of(scope).account)

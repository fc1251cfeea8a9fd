"""What every Lambda function of the stack has in common, whoever starts it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks import assets
from stacks.rules import acknowledge, silence_cfn_lint
from stacks.stage import Stage


def create_log_group(scope: Construct, *, stage: Stage) -> logs.LogGroup:
    """The log group of the one function in `scope`."""
    return logs.LogGroup(
        scope,
        "LogGroup",
        # Longer than a dead letter lives, since each names the log stream of its last run.
        retention=logs.RetentionDays.ONE_MONTH,
        removal_policy=stage.removal_policy,
    )


def create_function(
    scope: Construct,
    construct_id: str,
    *,
    folder: Path,
    entry: str = "handler",
    layer: lambda_.ILayerVersion,
    **only_this: Any,
) -> lambda_.Function:
    """A function that starts `entry` in the `handler.py` of `folder`, on the layer.

    Raises:
        AssetError: the folder cannot be packed.
    """
    function = lambda_.Function(
        scope,
        construct_id,
        runtime=assets.RUNTIME,
        architecture=lambda_.Architecture.ARM_64,
        code=assets.function_code(folder),
        handler=assets.handler(folder, entry),
        layers=[layer],
        **only_this,
    )
    acknowledge(function, "L1", "The layer is locked and compiled for Python 3.13.")
    silence_cfn_lint(function, "W3005")  # CDK lists in DependsOn what the property Role implies.
    return function


def seconds(value: timedelta) -> str:
    """A setting, `10` or `0.5`: whole seconds without a fraction."""
    return f"{value.total_seconds():g}"

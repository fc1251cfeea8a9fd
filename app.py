"""The composition root: context in, one stack out. No AWS call, no git, no clock.

    cdk deploy -c stage=prod -c customer_managed_key=true

Context: `stage`, `catalogue`, `customer_managed_key`, `page_email`, `notify_email`; for tests
`lease_seconds`, `backoff_base_seconds`, `backoff_cap_seconds`.
"""

import sys
from typing import Any

from aws_cdk import App, CliCredentialsStackSynthesizer, Validations
from cdk_nag import AwsSolutionsChecks

from stacks.catalogue import catalogue
from stacks.jobs_stack import JobsStack
from stacks.stage import Stage


def build(app: App) -> JobsStack:
    """Put the stack that the app's context describes into the app, with what checks it."""
    context: dict[str, Any] = app.node.get_all_context()
    stage = Stage.from_context(context)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return JobsStack(
        app,
        stage=stage,
        catalogue=catalogue(
            context.get("catalogue", "production"), retains_data=stage.retains_data
        ),
        # The embedded AWS lacks the roles that `cdk bootstrap` makes for publishing assets.
        synthesizer=CliCredentialsStackSynthesizer() if stage.is_local else None,
    )


if __name__ == "__main__":
    app = App()
    try:
        build(app)
    except ValueError as refused:  # a wrong spec, catalogue or stage: its message says it all
        sys.exit(f"{type(refused).__name__}: {refused}")
    app.synth()

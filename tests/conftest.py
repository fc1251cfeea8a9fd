"""One deployed stack for all tests that need one, and what they need to talk to it.

On the embedded AWS, unless REDRIVE_SMOKE_STAGE names a stage of a real account that was deployed
with `-c catalogue=tests`.
"""

import os

import pytest

from local.deploy import deployed_aws
from tests.e2e.stack import Stack


@pytest.fixture(scope="session")
def stack_context():
    """The CDK's context, beside what the local stage has anyway."""
    return {"catalogue": "tests"}


@pytest.fixture(scope="session")
def stack(tmp_path_factory, stack_context):
    if stage := os.environ.get("REDRIVE_SMOKE_STAGE"):
        yield Stack.on_aws(stage)
        return
    state = tmp_path_factory.mktemp("aws")
    with deployed_aws(state, **stack_context) as (aws, outputs):
        yield Stack.embedded(aws, outputs)


@pytest.fixture
def sink(stack):
    if stack.sink is None:
        pytest.skip("a real account has no mail sink to look into")
    yield stack.sink
    stack.sink.heal()

"""One deployed stack for all end-to-end tests, and what a test needs to talk to it.

On the embedded AWS, unless REDRIVE_SMOKE_STAGE names a stage of a real account that was deployed
with `-c catalogue=tests`.
"""

import os
from pathlib import Path

import pytest

from local.deploy import deployed_aws
from tests.e2e.stack import Stack


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("e2e")


@pytest.fixture(scope="session")
def stack(tmp_path_factory):
    if stage := os.environ.get("REDRIVE_SMOKE_STAGE"):
        yield Stack.on_aws(stage)
        return
    state = tmp_path_factory.mktemp("aws")
    with deployed_aws(state, catalogue="tests") as (aws, outputs):
        yield Stack.embedded(aws, outputs)


@pytest.fixture
def sink(stack):
    if stack.sink is None:
        pytest.skip("a real account has no mail sink to look into")
    yield stack.sink
    stack.sink.heal()

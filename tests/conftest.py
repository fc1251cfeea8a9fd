"""One deployed stack for all tests that need one, and what they need to talk to it.

On the embedded AWS, unless REDRIVE_SMOKE_STAGE names a stage of a real account that was deployed
with `-c catalogue=tests`.
"""

import os
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from local.deploy import deployed_aws
from tests.e2e.stack import Stack


def pytest_configure():
    """What the developer's shell says of AWS is not for tests: a profile, `. .local/env`."""
    if "REDRIVE_SMOKE_STAGE" not in os.environ:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        # Nor is a proxy, on this machine's own addresses.
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).parts[0] == "e2e":
            item.add_marker("e2e")


class ByWhatIsShared(LoadScopeScheduling):
    """Tests that share what is slow to make (a deployed stack, templates) stay on one process."""

    def _split_scope(self, nodeid):
        folder = nodeid.split("/")[1]
        return folder if folder in ("e2e", "local", "soak", "stacks") else nodeid


def pytest_xdist_make_scheduler(config, log):
    return ByWhatIsShared(config, log)


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

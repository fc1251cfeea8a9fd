import pytest

LEASE_SECONDS = 10


@pytest.fixture(scope="session")
def stack_context():
    # A lease that a cold start, on a slow machine, does not use up.
    return {"catalogue": "tests", "lease_seconds": str(LEASE_SECONDS)}

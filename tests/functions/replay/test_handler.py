"""The module that Lambda loads."""

import gc
import importlib

import pytest

from redrive.testing import lambda_context
from replay import handler
from replay.errors import BadEvent
from replay.function import COLLECT_AFTER

ENVIRONMENT = {
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "REDRIVE_STAGE": "test",
    "REDRIVE_JOBS": "send_email",
    "REDRIVE_IDEMPOTENCY_TABLE": "idempotency",
    "REDRIVE_JOBS_TABLE": "jobs",
    "REDRIVE_REPLAY_LEASE_SECONDS": "60",
}


@pytest.fixture
def loaded(monkeypatch):
    """The module, as in a Lambda that has just begun."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    before = gc.get_threshold()
    gc.set_threshold(700)
    yield importlib.reload(handler)
    gc.set_threshold(*before)


def test_garbage_is_looked_for_less_often_than_python_would(loaded):
    assert loaded
    assert gc.get_threshold()[0] == COLLECT_AFTER


def test_inspect_only_reads(loaded):
    event = {"job": "send_email", "action": "replay", "reason": "by mistake"}

    with pytest.raises(BadEvent, match="list, status"):
        loaded.inspect(event, lambda_context())

"""`make up` and `make down`, with everything but the CDK."""

from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

import local.__main__
from local.aws import stop
from local.deploy import DeployFailed, deploy
from local.server import running


class Cdk:
    """In the place of the CDK: counts deployments, and fails when told to."""

    def __init__(self):
        self.deployed = 0
        self.fails = False

    @contextmanager
    def synthesis(self, state):
        yield lambda: state / "cdk.out"

    def deploy(self, aws, assembly):
        if self.fails:
            raise DeployFailed("no such table")
        self.deployed += 1
        return {"SendEmailQueueUrl": f"{aws.endpoint}/queue"}


@pytest.fixture
def cdk(monkeypatch):
    cdk = Cdk()
    monkeypatch.setattr(local.__main__, "synthesis", cdk.synthesis)
    monkeypatch.setattr(local.__main__, "deploy", cdk.deploy)
    monkeypatch.setattr(local.__main__, "bootstrap", lambda aws: None)
    return cdk


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(local.__main__, "STATE", tmp_path)
    yield tmp_path
    stop(tmp_path)


def run(*arguments):
    return CliRunner().invoke(local.__main__.commands, arguments)


def test_up_leaves_it_running_up_again_deploys_again_and_down_ends_it(cdk, state):
    first = run("up")
    pid = running(state)
    second = run("up")

    assert first.exit_code == second.exit_code == 0
    assert "SendEmailQueueUrl" in first.output
    assert ". .local/env" in first.output
    assert pid is not None
    assert running(state) == pid
    assert cdk.deployed == 2

    cdk.fails = True
    failed = run("up")
    assert failed.exit_code == 1
    assert "no such table" in failed.output
    assert running(state) == pid

    assert run("down").output == "Stopped.\n"
    assert running(state) is None
    assert not (state / "env").exists()


def test_a_first_deployment_that_fails_leaves_nothing_running(cdk, state):
    cdk.fails = True

    assert run("up").exit_code == 1

    assert running(state) is None


def test_down_without_up_is_fine(state):
    ended = run("down")

    assert (ended.exit_code, ended.output) == (0, "Nothing was running.\n")


def test_a_deployment_that_fails_shows_what_the_cdk_said(aws, tmp_path):
    with pytest.raises(DeployFailed, match=r"(?s)cdk deploy failed; the end of .*missing"):
        deploy(aws, tmp_path / "missing")

"""`make up` and `make down`, with everything but the CDK."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

import local.__main__
from local.aws import stop
from local.cloudwatch import Change
from local.deploy import DeployFailed, deploy
from local.server import ROOT, running
from tests.local.conftest import eventually


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


# `up` in a process of its own, where "deploy" takes as many seconds as are told.
UP = """
import pathlib, sys, time
import local.__main__ as commands
from contextlib import nullcontext

def deploy(aws, assembly):
    print("deploying", flush=True)
    with (commands.STATE / "turns").open("a") as turns:
        print("begins", file=turns, flush=True)
        time.sleep(float(sys.argv[2]))
        print("ends", file=turns)
    return {}

commands.STATE = pathlib.Path(sys.argv[1])
commands.synthesis = lambda state: nullcontext(lambda: state)
commands.bootstrap = lambda aws: None
commands.deploy = deploy
commands.commands(["up"])
"""


def start_up(state, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", UP, str(state), str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_whoever_kills_up_while_it_deploys_nothing_is_left_running(state, number):
    with start_up(state, 60) as up:
        assert up.stdout.readline() == "deploying\n"
        assert running(state) is not None

        up.send_signal(number)

    eventually(lambda: running(state) is None, "the embedded AWS is gone")


def test_two_ups_at_once_take_turns_and_deploy_to_one(state):
    with start_up(state, 1) as one, start_up(state, 1) as other:
        told = one.communicate()[0] + other.communicate()[0]

    assert (one.returncode, other.returncode) == (0, 0), told
    assert (state / "turns").read_text().split() == ["begins", "ends"] * 2
    assert running(state) is not None


@pytest.mark.parametrize("command", ["up", "down", "demo"])
def test_a_file_called_local_is_told_without_a_traceback(tmp_path, monkeypatch, command):
    monkeypatch.setattr(local.__main__, "STATE", tmp_path / ".local")
    (tmp_path / ".local").touch()

    told = run(command)

    assert told.exit_code == 1
    assert ".local cannot be a folder (File exists). Move it away." in told.output
    assert isinstance(told.exception, SystemExit)


def test_down_without_up_is_fine(state):
    ended = run("down")

    assert (ended.exit_code, ended.output) == (0, "Nothing was running.\n")


def test_watch_says_what_changes_until_it_is_ended(cdk, state, monkeypatch):
    minutes = [[Change(1, "Redrive-local-Growth", "OK", "ALARM")], []]
    watched = []

    class Fake:
        alarms = ("one", "other")

        def __init__(self, aws, template, *, minute_seconds):
            watched.append((aws.state, template, minute_seconds))

        def minute(self):
            if not minutes:
                raise KeyboardInterrupt
            return minutes.pop(0)

    monkeypatch.setattr(local.__main__, "Watched", Fake)
    monkeypatch.setattr(local.__main__, "synthesised", lambda aws: {"Resources": {}})
    assert "no embedded AWS is up" in run("watch").output
    run("up")

    told = run("watch", "--minute-seconds", "0.01").output.splitlines()

    assert told[:2] == ["2 alarms are watched.", "ALARM             Redrive-local-Growth"]
    assert watched == [(state, {"Resources": {}}, 0.01)]


def test_a_deployment_that_fails_shows_what_the_cdk_said(aws, tmp_path):
    (tmp_path / "missing").mkdir()
    with pytest.raises(DeployFailed, match=r"(?s)cdk deploy failed; the end of .*manifest"):
        deploy(aws, tmp_path / "missing")

"""One embedded AWS leaves nothing behind, whoever dies and however."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import local.server
from local.aws import Aws, AwsEnded, embedded_aws, stop
from local.server import (
    ROOT,
    StartFailed,
    kill_group,
    read_env,
    running,
    start_tethered,
    write_env,
)
from tests.local.conftest import PATIENCE_SECONDS, create_function, eventually

STARTER = """
import sys
from pathlib import Path
from local.aws import embedded_aws
with embedded_aws(Path(sys.argv[1])):
    print("up", flush=True)
    sys.stdin.read()
"""

# A job that neither ends nor listens.
HUNG = """
import os, pathlib, signal, time
def handler(event, context):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    file = pathlib.Path(event["group"])
    file.with_suffix(".new").write_text(str(os.getpgrp()))
    file.with_suffix(".new").replace(file)
    while True:
        time.sleep(60)
"""


@contextmanager
def starter(state):
    """A program that has started an embedded AWS, as `make demo` or a test run is one."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)


def hang_a_job(aws, directory):
    """Returns the process group of MiniStack and its workers, once a job hangs in it."""
    create_function(aws, "hung", HUNG)
    group = directory / "group"
    aws.client("lambda").invoke(
        FunctionName="hung", InvocationType="Event", Payload=f'{{"group": "{group}"}}'
    )
    eventually(group.exists, "the job runs")
    return int(group.read_text())


def group_members(group):
    """The living processes of a group; a zombie is dead, and its new parent will reap it."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, check=True)
        states = [line.split() for line in listed.stdout.decode().splitlines()]
        return [state for pgid, state in states if pgid == str(group) and state[0] != "Z"]
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgid = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if pgid == str(group) and state not in "ZX":
            members.append(stat.parent.name)
    return members


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("starter", signal.SIGINT),
        ("starter", signal.SIGTERM),
        ("starter", signal.SIGKILL),
        ("supervisor", signal.SIGTERM),
        ("supervisor", signal.SIGKILL),
    ],
)
def test_whoever_is_killed_nothing_is_left_not_even_a_hung_job(tmp_path, victim, number):
    state = tmp_path / "state"
    with starter(state) as process:
        supervisor = running(state)
        group = hang_a_job(Aws.at(state), tmp_path)
        assert len(group_members(group)) >= 2

        os.kill(process.pid if victim == "starter" else supervisor, number)

        eventually(lambda: not group_members(group), "MiniStack and its workers are gone")
        eventually(lambda: running(state) is None, "the supervisor is gone")


def test_when_ministack_dies_its_workers_and_the_supervisor_go_too(tmp_path):
    state = tmp_path / "state"
    with starter(state):
        group = hang_a_job(Aws.at(state), tmp_path)

        os.kill(group, signal.SIGKILL)  # the leader alone

        eventually(lambda: not group_members(group), "the workers are gone")
        eventually(lambda: running(state) is None, "the supervisor is gone")
        assert not (state / "env").exists()


def test_a_tethered_command_dies_with_its_starter_and_its_own_children_too(tmp_path):
    family = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    with (tmp_path / "log").open("wb") as log:
        process = start_tethered(
            [sys.executable, "-c", family],
            python=sys.executable,
            env={"PATH": os.defpath},
            output=log,
            cwd=tmp_path,
        )
    try:
        eventually(lambda: len(group_members(process.pid)) == 3, "all three run")

        process.stdin.close()  # as the kernel does it for a starter that was killed

        eventually(lambda: not group_members(process.pid), "all three are gone")
    finally:
        kill_group(process)


def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    fake = tmp_path / "local"
    fake.mkdir()
    (fake / "emulator.py").write_text("print('no room', flush=True); raise SystemExit(3)")
    (fake / "tether.py").write_bytes((ROOT / "local" / "tether.py").read_bytes())
    monkeypatch.setattr(local.server, "ROOT", tmp_path)
    supervisor = local.server.Supervisor(tmp_path / "state")

    with pytest.raises(StartFailed, match=r"(?s)MiniStack did not come up.*no room"):
        supervisor.run(starter=None)

    assert running(tmp_path / "state") is None
    assert not (tmp_path / "state" / "env").exists()


def test_without_its_environment_the_start_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setattr(local.server, "EMULATOR", ROOT / ".missing" / "python")

    with pytest.raises(StartFailed, match="`make up` installs it"):
        local.server.Supervisor(tmp_path).run(starter=None)


def test_it_takes_another_port_when_somebody_took_the_chosen_one(tmp_path, monkeypatch):
    choose = local.server.free_port
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = iter([other.getsockname()[1], choose()])
        monkeypatch.setattr(local.server, "free_port", lambda: next(ports))
        supervisor = local.server.Supervisor(tmp_path)
        monkeypatch.setattr(supervisor._stopped, "wait", lambda seconds=None: seconds is None)

        supervisor.run(starter=None)  # stops as soon as it is up

    assert next(ports, None) is None


def test_a_second_supervisor_refuses_the_state_directory_of_a_first(tmp_path, aws):
    with pytest.raises(StartFailed, match="already runs in"), embedded_aws(aws.state):
        pass

    assert running(aws.state) is not None


def test_one_that_is_set_free_outlives_its_starter_until_it_is_stopped(tmp_path):
    with embedded_aws(tmp_path, set_free=True):
        pass
    try:
        assert running(tmp_path) is not None
        assert Aws.at(tmp_path).client("sts").get_caller_identity()["Arn"].endswith(":root")
    finally:
        assert stop(tmp_path) is True

    assert running(tmp_path) is None
    assert not (tmp_path / "env").exists()
    assert stop(tmp_path) is False


def test_one_that_would_be_set_free_ends_with_a_block_that_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), embedded_aws(tmp_path, set_free=True):
        _ = 1 / 0

    assert running(tmp_path) is None


def die_in_the_middle(state, *, set_free):
    with embedded_aws(state, set_free=set_free) as aws:
        os.kill(running(state), signal.SIGKILL)
        eventually(lambda: running(state) is None, "the supervisor is gone")
        if not set_free:
            aws.client("sts", retries={"total_max_attempts": 1}).get_caller_identity()


@pytest.mark.parametrize("set_free", [False, True])
def test_when_it_dies_while_it_is_used_its_user_is_told_and_where_the_log_is(tmp_path, set_free):
    with pytest.raises(AwsEnded, match=r"the embedded AWS has died; its log is .*/ministack\.log"):
        die_in_the_middle(tmp_path, set_free=set_free)


def test_a_file_in_the_place_of_the_state_directory_is_refused_by_name(tmp_path):
    state = tmp_path / ".local"
    state.touch()

    with pytest.raises(StartFailed, match=r"\.local cannot be a folder \(File exists\)"):
        running(state)


def test_a_stale_pid_file_is_nobody_and_nobody_is_killed(tmp_path):
    (tmp_path / "supervisor.pid").write_text(str(os.getpid()))

    assert running(tmp_path) is None
    assert stop(tmp_path) is False


def test_a_pid_of_another_program_is_never_killed(tmp_path):
    held = local.server.lock(tmp_path)
    with closing(held):
        held.write(str(os.getppid()))
        held.flush()

        assert stop(tmp_path) is False


def test_the_env_file_is_read_by_a_shell_and_by_us(tmp_path):
    variables = {"PLAIN": "1", "EMPTY": "", "ODD": "two words, a ' and a $HOME"}
    write_env(tmp_path / "env", variables)

    script = '. ./env && printf "%s|%s|%s|%s" "$PLAIN" "$EMPTY" "$ODD" "$AWS_PROFILE"'
    shown = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={"PATH": os.defpath, "AWS_PROFILE": "work"},
        capture_output=True,
        check=True,
    )
    assert shown.stdout.decode() == "1||two words, a ' and a $HOME|"
    assert read_env(tmp_path / "env") == variables


def test_functions_see_nothing_of_our_environment(aws, monkeypatch):
    source = "import os, sys\ndef handler(event, context): return [dict(os.environ), sys.path]"
    create_function(aws, "environment", source)

    answer = aws.client("lambda").invoke(FunctionName="environment")["Payload"].read().decode()

    assert ".venv" not in answer
    assert "VIRTUAL_ENV" not in answer
    assert str(ROOT / "functions") not in answer
    assert aws.mail_sink_url in answer


def test_a_grant_for_a_call_covers_its_batch_form_as_on_aws(aws):
    source = """
import boto3
def handler(event, context):
    entries = [{"Id": "0", "MessageBody": "hello"}]
    answer = boto3.client("sqs").send_message_batch(QueueUrl=event["queue"], Entries=entries)
    return len(answer["Successful"])
"""
    create_function(aws, "sender", source)
    sqs = aws.client("sqs")
    queue = sqs.create_queue(QueueName="granted")["QueueUrl"]

    def invoke():
        payload = f'{{"queue": "{queue}"}}'
        answer = aws.client("lambda").invoke(FunctionName="sender", Payload=payload)
        return answer["Payload"].read().decode()

    assert "AccessDenied" in invoke()
    grant = (
        '{"Version": "2012-10-17", "Statement": '
        '[{"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}]}'
    )
    aws.client("iam").put_role_policy(RoleName="sender", PolicyName="send", PolicyDocument=grant)
    assert invoke() == "1"

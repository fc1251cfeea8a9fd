"""The embedded AWS as its users see it: start one for a while, or leave one running."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import boto3
from botocore.config import Config

from local.server import (
    ROOT,
    SET_FREE,
    START_SECONDS,
    LocalError,
    StartFailed,
    make_folder,
    read_env,
    running,
    tail,
)

STOP_SECONDS = 15.0


class AwsEnded(LocalError):
    """The embedded AWS died while it was used."""


@dataclass(frozen=True)
class Aws:
    """A running embedded AWS."""

    state: Path
    env: dict[str, str]
    """What any AWS client needs, as in the file `env` of the state directory."""

    @classmethod
    def at(cls, state: Path) -> Self:
        try:
            return cls(state, read_env(state / "env"))
        except FileNotFoundError:
            raise StartFailed(f"no embedded AWS is up in {state}") from None

    @property
    def endpoint(self) -> str:
        return self.env["AWS_ENDPOINT_URL"]

    @property
    def mail_sink_url(self) -> str:
        return self.env["MAIL_SINK_URL"]

    @property
    def log(self) -> Path:
        """MiniStack's log, with the functions' output."""
        return self.state / "ministack.log"

    @cached_property
    def session(self) -> boto3.Session:
        return boto3.Session(
            aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            region_name=self.env["AWS_REGION"],
        )

    def client(self, service: str, **config: Any) -> Any:
        """A boto3 client of the account's root; `config` as for botocore's Config."""
        return self.session.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.endpoint,
            verify=self.env["AWS_CA_BUNDLE"],
            config=Config(proxies={}, **config),
        )


@contextmanager
def embedded_aws(state: Path, *, set_free: bool = False) -> Iterator[Aws]:
    """One that ends with the block, or with this process, however that ends.

    `set_free` lets it live on, once the block has succeeded.

    Raises:
        AwsEnded: the block failed, and it was no more.
    """
    supervisor = _start(state)
    starter = supervisor.stdin
    assert starter  # noqa: S101 - it is a pipe
    try:
        aws = _wait_until_up(state, supervisor)
        try:
            yield aws
            if set_free:
                starter.write(SET_FREE)
        except Exception as error:
            if _has_ended(supervisor):
                raise AwsEnded(f"the embedded AWS has died; its log is {aws.log}") from error
            raise
        if set_free:
            supervisor.returncode = 0  # so that nobody waits for it, or warns that nobody did
    finally:
        starter.close()
        _wait_until_down(supervisor)


def _has_ended(supervisor: "subprocess.Popen[bytes]") -> bool:
    """It takes a moment to end when MiniStack has."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(timeout=1)
    return supervisor.returncode is not None


def stop(state: Path) -> bool:
    """Ends the one that owns the state directory; False when there is none."""
    pid = running(state)
    if pid is None or not _is_supervisor(pid):
        return False
    deadline = time.monotonic() + STOP_SECONDS
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        while running(state) == pid:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
    return True


def _is_supervisor(pid: int) -> bool:
    """A pid that was written in another container means another process here."""
    arguments = Path(f"/proc/{pid}/cmdline")
    if arguments.exists():
        return b"local.server" in arguments.read_bytes()
    shown = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], check=False, capture_output=True
    )
    return b"local.server" in shown.stdout


def _start(state: Path) -> "subprocess.Popen[bytes]":
    make_folder(state)
    (state / "env").unlink(missing_ok=True)
    with _server_log(state).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "local.server", str(state.resolve())],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,  # Ctrl-C is ours to handle; it ends when we say so
        )


def _wait_until_up(state: Path, supervisor: "subprocess.Popen[bytes]") -> Aws:
    deadline = time.monotonic() + START_SECONDS + 5
    while not (state / "env").exists():
        if supervisor.poll() is not None or time.monotonic() > deadline:
            raise StartFailed(tail(_server_log(state)) or "the embedded AWS did not come up")
        time.sleep(0.02)
    return Aws.at(state)


def _wait_until_down(supervisor: "subprocess.Popen[bytes]") -> None:
    try:
        supervisor.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait(timeout=STOP_SECONDS)


def _server_log(state: Path) -> Path:
    return state / "supervisor.log"

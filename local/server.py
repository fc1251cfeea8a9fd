"""The supervisor: one process that owns one embedded AWS, and leaves nothing behind.

It holds the mail sink in a thread and MiniStack as a child, in a process group of its own together
with the Lambda workers. The group is killed when the supervisor is told to stop (SIGTERM, SIGINT),
when its own standard input ends (its starter died), and, by `tether.py`, when the supervisor itself
dies, however it does. A byte on its standard input sets it free: it outlives its starter then.

    python -m local.server STATE_DIRECTORY
"""

import fcntl
import os
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, TypeAlias

from local.certificates import Certificates, write_certificates
from local.mail_sink import MailSink

ROOT = Path(__file__).resolve().parent.parent
EMULATOR = ROOT / ".emulator" / "bin" / "python"
TETHER = ROOT / "local" / "tether.py"
ACCOUNT = "000000000000"
# Not us-east-1: in the older regions version 1 of the aws command line sends `aws sqs` to AWS,
# whatever AWS_ENDPOINT_URL says (its customization `overridesslcommonname`).
REGION = "eu-central-2"
START_SECONDS = 60.0
START_ATTEMPTS = 3
SET_FREE = b"."

Tethered: TypeAlias = "subprocess.Popen[bytes]"


class LocalError(RuntimeError):
    """What a command shows as it is, without a traceback."""


class StartFailed(LocalError):
    """The embedded AWS did not come up; the message holds the end of its log."""


def start_tethered(
    command: list[str], *, python: Path | str, env: Mapping[str, str], output: IO[bytes], cwd: Path
) -> Tethered:
    """Runs the command in a process group of its own, which dies with us."""
    return subprocess.Popen(
        [str(python), "-I", str(TETHER), *command],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
    )


def kill_group(process: Tethered) -> None:
    # Nobody left to kill; macOS says PermissionError of a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=10)
    if process.stdin:
        process.stdin.close()


def tail(log: Path, lines: int = 25) -> str:
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def write_env(file: Path, variables: Mapping[str, str]) -> None:
    """In one step, so that a reader never sees half of it."""
    # A profile of the user's would win over the keys in some clients.
    lines = ["unset AWS_PROFILE AWS_DEFAULT_PROFILE"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    draft = file.with_suffix(".new")
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(file)


def read_env(file: Path) -> dict[str, str]:
    exports = [shlex.split(line) for line in file.read_text().splitlines()]
    pairs = [words[1].partition("=") for words in exports if words[0] == "export"]
    return {name: value for name, _, value in pairs}


def make_folder(state: Path) -> None:
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartFailed(f"{state} cannot be a folder ({error.strerror}). Move it away.") from None


@contextmanager
def turn(state: Path, name: str) -> Iterator[None]:
    """Lets one process at a time into the blocks of this name; the next one waits."""
    make_folder(state)
    with (state / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock(state: Path, name: str = "supervisor.pid") -> IO[str] | None:
    """The supervisor's lock on its state directory; None when another one holds it.

    The kernel frees it with its holder, so a pid in it is never stale while it is held.
    """
    make_folder(state)
    file = (state / name).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def running(state: Path) -> int | None:
    """The pid of the supervisor that owns the state directory, if one runs."""
    held = lock(state)
    if held is not None:
        held.close()
        return None
    pid = (state / "supervisor.pid").read_text().strip()
    return int(pid) if pid.isdigit() else None


class Stop:
    """Like threading.Event, but a signal handler may set it: an Event can deadlock there."""

    def __init__(self) -> None:
        self._told: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._told.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        try:
            self._told.get(timeout=seconds)
        except Empty:
            return False
        self.set()
        return True


class Supervisor:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.env_file = state / "env"
        self.log = state / "ministack.log"
        self._scratch = state / "scratch"
        self._stopped = Stop()

    def run(self, *, starter: int | None) -> None:
        """Returns when told to stop, when MiniStack has ended, or the starter, a pipe from it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopped.set())
        if starter is not None:
            self._stop_after(lambda: os.read(starter, 1))
        with ExitStack() as stack:
            held = stack.enter_context(closing(self._own_state()))
            held.truncate(0)
            held.write(str(os.getpid()))
            held.flush()
            stack.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            stack.callback(self.env_file.unlink, missing_ok=True)
            certificates = write_certificates(self.state / "tls")
            sink = stack.enter_context(MailSink())
            ministack, endpoint = self._start_ministack(certificates, sink.url, stack)
            write_env(self.env_file, client_env(endpoint, certificates, sink.url))
            self._stop_after(ministack.wait)
            self._stopped.wait()

    def _own_state(self) -> IO[str]:
        deadline = time.monotonic() + 1  # `running` holds the lock for an instant, too
        while (held := lock(self.state)) is None:
            if time.monotonic() > deadline:
                raise StartFailed(f"an embedded AWS already runs in {self.state}")
            time.sleep(0.02)
        return held

    def _start_ministack(
        self, certificates: Certificates, mail_sink_url: str, stack: ExitStack
    ) -> tuple[Tethered, str]:
        """Again on another port when somebody took ours between choosing and binding."""
        if not EMULATOR.exists():
            raise StartFailed(f"{EMULATOR.relative_to(ROOT)} is missing; `make up` installs it")
        deadline = time.monotonic() + START_SECONDS
        for _ in range(START_ATTEMPTS):
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir()
            port = free_port()
            with self.log.open("wb") as output:
                ministack = start_tethered(
                    [str(ROOT / "local" / "emulator.py")],
                    python=EMULATOR,
                    env=ministack_env(port, certificates, mail_sink_url, self._scratch),
                    output=output,
                    cwd=self._scratch,
                )
            stack.callback(kill_group, ministack)
            endpoint = f"https://127.0.0.1:{port}"
            if self._healthy(ministack, endpoint, certificates, deadline):
                return ministack, endpoint
            if self._stopped.wait(0.2):
                raise StartFailed("stopped while starting")
        raise StartFailed(f"MiniStack did not come up; the end of {self.log}:\n{tail(self.log)}")

    def _healthy(
        self, ministack: Tethered, endpoint: str, certificates: Certificates, deadline: float
    ) -> bool:
        trusted = ssl.create_default_context(cafile=str(certificates.authority))
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )
        while time.monotonic() < deadline and ministack.poll() is None:
            try:
                with direct.open(f"{endpoint}/_ministack/ready", timeout=1):
                    return True
            except OSError:  # URLError is one
                if self._stopped.wait(0.05):
                    return False
        return False

    def _stop_after(self, wait: Callable[[], object]) -> None:
        def watch() -> None:
            if wait() != SET_FREE:
                self._stopped.set()

        threading.Thread(target=watch, daemon=True).start()


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ministack_env(
    port: int, certificates: Certificates, mail_sink_url: str, scratch: Path
) -> dict[str, str]:
    """All that MiniStack, and so every function, inherits."""
    return {
        "PATH": os.defpath,
        "HOME": str(scratch),  # no ~/.aws of the user's
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": "127.0.0.1",  # in queue URLs; `localhost` may mean ::1 first
        "AUTH": "true",
        "USE_SSL": "1",  # `enforce_ssl` denies plain HTTP once IAM is enforced
        "MINISTACK_SSL_CERT": str(certificates.certificate),
        "MINISTACK_SSL_KEY": str(certificates.key),
        "MINISTACK_REGION": REGION,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "AWS_CA_BUNDLE": str(certificates.authority),
        "AWS_ENDPOINT_URL_SESV2": mail_sink_url,
    }


def client_env(endpoint: str, certificates: Certificates, mail_sink_url: str) -> dict[str, str]:
    """What any AWS client needs. The key `test` is the account's root in MiniStack."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_SESSION_TOKEN": "",  # one left in the shell would be refused
        "AWS_CA_BUNDLE": str(certificates.authority),
        "NODE_EXTRA_CA_CERTS": str(certificates.authority),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "MAIL_SINK_URL": mail_sink_url,
    }


def main(arguments: list[str]) -> int:
    try:
        Supervisor(Path(arguments[0]).resolve()).run(starter=sys.stdin.fileno())
    except StartFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Ties a command's life to that of its starter: when our standard input ends, the whole process
group is killed, hung Lambda workers included. The kernel closes the pipe even for `kill -9`.

    python -I tether.py COMMAND ARGUMENT...
    python -I tether.py SCRIPT.py              runs in this very process

It wants a session of its own and a pipe as standard input (`server.start_tethered`). Standard
library only, and importing nothing of ours, since the emulator's interpreter runs it too.
"""

import os
import runpy
import signal
import subprocess
import sys
import threading


def kill_group_at_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def main(command: list[str]) -> int:
    if os.getpgrp() != os.getpid():
        raise SystemExit("tether.py must lead a process group, since it kills the one it is in")
    threading.Thread(target=kill_group_at_end_of_input, daemon=True).start()
    if command[0].endswith(".py"):
        runpy.run_path(command[0], run_name="__main__")
        return 0
    return subprocess.call(command, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

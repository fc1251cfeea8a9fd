"""What is done when Lambda, or a service, imports us: as little as can be."""

import json
import os
import subprocess
import sys

import pytest

from stacks.catalogue import FUNCTIONS

# Each costs a cold start tens of milliseconds, or belongs to development.
HEAVY = {
    "aws_lambda_powertools.utilities.batch",
    "aws_lambda_powertools.utilities.parser",
    "aws_xray_sdk",
    "moto",
    "pydantic",
    "redrive.publisher",
    "redrive.testing",
}
WORKER = {"aws_lambda_powertools", "redrive.worker"}

# Neither a connection nor a client, which costs more than all else at a cold start.
IMPORT = """
import importlib, json, socket, sys
import botocore.client

def refuse(*arguments, **options):
    raise AssertionError("a client was made, or the network used, by an import")

socket.socket.connect = botocore.client.ClientCreator.create_client = refuse
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""


def modules_after_import(module: str) -> set[str]:
    """In a Python of its own, with nothing in its environment."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, module],
        env={"PYTHONPATH": str(FUNCTIONS), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("job", sorted(path.parent.name for path in FUNCTIONS.glob("*/handler.py")))
def test_importing_a_handler_makes_no_client_reads_no_setting_and_loads_nothing_heavy(job):
    assert modules_after_import(f"{job}.handler") & HEAVY == set()


def test_importing_the_publisher_loads_nothing_of_the_worker():
    loaded = modules_after_import("redrive.publisher")
    assert "redrive.publisher" in loaded
    assert loaded & (HEAVY | WORKER) == {"redrive.publisher"}

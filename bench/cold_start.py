"""What importing a job's handler costs, beyond boto3 and its two clients: time, and peak memory."""

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 7
FUNCTIONS = Path(__file__).parents[1] / "functions"

_CLIENTS = """
import boto3
boto3.client("sqs"), boto3.client("dynamodb")
"""
_PROGRAM = """
import json, resource, sys, time
sys.path.insert(0, {functions!r})
{clients}
start = time.perf_counter()
import {module}
milliseconds = (time.perf_counter() - start) * 1000
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "linux" else 1024)
print(json.dumps([milliseconds, peak / 1024]))
"""


@dataclass(frozen=True)
class ColdStart:
    """Medians: milliseconds of import, MiB of peak memory of the whole process."""

    import_milliseconds: float
    peak_mebibytes: float


def measure(module: str) -> ColdStart:
    """Imports `module` in fresh interpreters."""
    program = _PROGRAM.format(functions=str(FUNCTIONS), clients=_CLIENTS, module=module)
    environment = {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true"}
    runs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program],
                env=environment,
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        for _ in range(ROUNDS)
    ]
    times, peaks = zip(*runs, strict=True)
    return ColdStart(statistics.median(times), statistics.median(peaks))

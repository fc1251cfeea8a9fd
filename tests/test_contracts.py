"""What must stay equal across the parts that do not import each other."""

import ast
import json
import re
import subprocess
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
from uv import find_uv_bin

from redrive.discovery import Destination
from redrive.message import render_key
from redrive.worker.settings import Settings
from replay.settings import Settings as ReplaySettings
from stacks.catalogue import catalogue
from stacks.job_spec import JobSpec
from tests.stacks.synthesis import synthesize_app

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def folders_with_a_handler(root: Path) -> set[str]:
    return {path.parent.name for path in root.glob("*/handler.py")}


# The operator's functions: in a folder like a job's, with its code as packed, but no job.
OPERATORS = {"replay"}


def test_every_job_of_the_catalogue_has_a_folder_and_every_folder_a_job():
    jobs = {job.spec.name for job in catalogue("production").jobs}
    assert jobs | OPERATORS == folders_with_a_handler(ROOT / "functions")
    assert not jobs & OPERATORS


def test_the_tests_catalogue_holds_the_real_jobs_and_the_ones_for_tests():
    names = {job.spec.name for job in catalogue("tests").jobs}
    of_tests = folders_with_a_handler(ROOT / "tests" / "e2e" / "jobs")
    assert names | OPERATORS == folders_with_a_handler(ROOT / "functions") | of_tests


def imports(path: Path) -> set[str]:
    """The top-level packages that a module imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def test_jobs_and_replay_import_neither_each_other_nor_what_is_not_deployed_with_them():
    folders = folders_with_a_handler(ROOT / "functions")
    assert folders > OPERATORS
    for folder in folders:
        foreign = (folders - {folder}) | {"stacks", "local", "bench", "tests", "aws_cdk"}
        for module in (ROOT / "functions" / folder).rglob("*.py"):
            assert not imports(module) & foreign, module


def test_the_library_imports_neither_a_job_nor_replay():
    folders = folders_with_a_handler(ROOT / "functions")
    for module in (ROOT / "functions" / "redrive").rglob("*.py"):
        assert not imports(module) & folders, module


def test_a_handler_only_wires():
    for handler in (ROOT / "functions").glob("*/handler.py"):
        assert len(handler.read_text().splitlines()) <= 40, handler


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [find_uv_bin(), "build", "--quiet", "--wheel", "--no-build-isolation"]
    subprocess.run([*command, "--out-dir", folder], cwd=ROOT, check=True)
    (path,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(path).namelist())


def test_the_wheel_holds_the_library_alone(wheel):
    packages = {name.partition("/")[0] for name in wheel}
    assert {name for name in packages if not name.endswith(".dist-info")} == {"redrive"}
    assert {"redrive/py.typed", "redrive/publisher.py", "redrive/worker/worker.py"} <= wheel


def test_a_plain_install_needs_boto3_alone():
    (dependency,) = PROJECT["project"]["dependencies"]
    assert dependency.startswith("boto3")


def test_the_layer_is_what_the_worker_extra_asks_for():
    extras = PROJECT["project"]["optional-dependencies"]
    assert PROJECT["dependency-groups"]["layer"] == extras["worker"]


def test_the_lock_files_name_no_host_and_pin_every_package_by_hash():
    for lock in (ROOT / "locks").glob("*.txt"):
        text = lock.read_text()
        assert not re.search(r"https?:|index-url|find-links", text), lock
        for package in re.split(r"\n(?=\S)", text.strip()):
            assert "==" in package, package
            assert "--hash=sha256:" in package, package


class Asked(dict):
    """An environment that notes which of its variables were read."""

    def __init__(self, variables):
        super().__init__(variables)
        self.names = set()

    def get(self, name, default=None):
        self.names.add(name)
        return super().get(name, default)


def test_the_worker_reads_exactly_the_settings_that_the_stack_gives_it(tmp_path):
    worker = synthesize_app(tmp_path).properties("SendEmailWorker")
    variables = Asked(worker["Environment"]["Variables"])
    Settings.from_environment(variables)
    assert variables.names == {name for name in variables if name.startswith("REDRIVE_")}


@pytest.mark.parametrize("function", ["ReplayFunction", "InspectFunction"])
def test_replay_reads_exactly_the_settings_that_the_stack_gives_it(function, tmp_path):
    properties = synthesize_app(tmp_path, catalogue="tests").properties(function)
    variables = Asked(properties["Environment"]["Variables"])
    settings = ReplaySettings.from_environment(variables)
    assert variables.names == {name for name in variables if name.startswith("REDRIVE_")}
    assert settings.jobs == tuple(job.spec.name for job in catalogue("tests").jobs)


def test_replay_has_the_handlers_that_the_stack_names(tmp_path):
    synthesis = synthesize_app(tmp_path)
    for function in ("ReplayFunction", "InspectFunction"):
        module, _, entry = synthesis.properties(function)["Handler"].rpartition(".")
        assert callable(getattr(import_module(module), entry))


def test_what_the_stack_says_of_a_job_is_what_discovery_reads(tmp_path):
    text = synthesize_app(tmp_path).properties("SendEmailParameter")["Value"]
    assert Destination.parse("send_email", text) == Destination(
        job="send_email",
        key="email_id",
        queue_url="<SendEmailQueue>",
        queue_urls=("<SendEmailQueue>",),
        dead_letter_queue_url="<SendEmailDeadLetterQueue>",
        fifo=False,
        max_message_bytes=1_048_576,
        max_replays=3,
    )
    # A stack from before replay says no limit: then it is a spec's default.
    fields = json.loads(text)
    del fields["limits"]["max_replays"]
    found = Destination.parse("send_email", json.dumps(fields))
    assert found.max_replays == JobSpec("send_email", key="email_id").max_replays


@pytest.mark.parametrize("job", catalogue("tests").jobs, ids=lambda job: job.spec.name)
def test_every_job_has_an_example_that_has_its_key(job):
    payload = json.loads((job.folder / "example.json").read_text())
    assert render_key(payload, job.spec.key)

"""The app as `cdk synth` starts it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.catalogue import ROOT, CatalogueError
from tests.stacks.synthesis import Synthesis, feature_flags, synthesize_app


def without_network() -> list[str]:
    """A command that runs another without a network, where the kernel lets us."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], check=False).returncode:
        return []
    return [unshare, "-rn"]


@pytest.fixture(scope="module")
def synth(tmp_path_factory: pytest.TempPathFactory, dev: Synthesis) -> Path:
    """What the app makes with neither credentials nor region nor network; `dev` made the layer."""
    folder = tmp_path_factory.mktemp("app")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],  # jsii keeps its unpacked packages there
        "CDK_OUTDIR": str(folder),
        "CDK_CONTEXT_JSON": json.dumps(feature_flags()),
    }
    command = [*without_network(), sys.executable, "app.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_synth_needs_no_credentials_and_no_network(synth: Path, dev: Synthesis) -> None:
    template = json.loads((synth / "Redrive-dev.template.json").read_text())
    assert template == dev.template


def test_the_command_line_finds_the_app_and_cdks_rules_are_errors() -> None:
    settings = json.loads((ROOT / "cdk.json").read_text())
    assert settings["app"] == "python3 app.py"
    assert settings["output"] == "cdk.out"
    assert settings["context"]["@aws-cdk/core:validateAgainstDefaultRules"] is True


def test_the_jobs_of_the_tests_are_not_put_into_production(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="'tests' is not for a stage that retains its data"):
        synthesize_app(tmp_path, stage="prod", catalogue="tests")


def test_the_template_names_nothing_of_this_machine(synth: Path) -> None:
    for path in (synth / "Redrive-dev.template.json", synth / "manifest.json"):
        assert str(ROOT) not in path.read_text()


def test_the_composition_root_stays_short() -> None:
    assert len((ROOT / "app.py").read_text().splitlines()) <= 45


def test_a_refused_spec_is_told_in_one_line_and_without_a_traceback(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text((ROOT / "app.py").read_text())
    for name in ("stacks", "functions", "locks"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "stacks").unlink()
    shutil.copytree(ROOT / "stacks", tmp_path / "stacks")
    jobs = tmp_path / "stacks" / "jobs.py"
    jobs.write_text(jobs.read_text().replace("p99=timedelta(seconds=5)", "p99=timedelta(hours=1)"))
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "JobSpecError: " in done.stderr
    assert "p99" in done.stderr

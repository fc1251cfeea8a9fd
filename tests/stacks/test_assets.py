"""How functions and the layer are packed."""

import os
import shutil
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uv
from aws_cdk import App, FileSystem, Stack
from aws_cdk import aws_lambda as lambda_

from stacks import assets
from stacks.catalogue import FUNCTIONS, Catalogue, Job
from stacks.job_spec import JobSpec

SPECS = (JobSpec("send_email", key="id"), JobSpec("send_sms", key="id"))


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Job, ...]:
    """Two jobs, replay and a library of their own, with what tools leave beside sources."""
    functions = tmp_path / "functions"
    for name in ("redrive/worker", "redrive/testing", "replay", "send_email", "send_sms"):
        (functions / name).mkdir(parents=True)
        (functions / name / "handler.py").write_text(f"# {name}\n")
        litter(functions / name)
    monkeypatch.setattr(assets, "LIBRARY", functions / "redrive")
    return Catalogue.of(SPECS, functions).jobs


def litter(folder: Path) -> None:
    (folder / "__pycache__").mkdir(exist_ok=True)
    (folder / "__pycache__" / "handler.cpython-313.pyc").write_bytes(os.urandom(8))
    (folder / "__pycache__" / "kernel.nbi").write_bytes(os.urandom(8))
    (folder / "old.pyc").write_bytes(os.urandom(8))
    (folder / ".coverage").write_bytes(os.urandom(8))


@pytest.fixture
def hashes(jobs: tuple[Job, ...], tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Each folder's asset hash, from a fresh packing."""
    folders = [*(job.folder for job in jobs), tmp_path / "functions" / "replay"]

    def pack() -> dict[str, str]:
        for folder in folders:
            assets.function_code(folder, tmp_path / "build")
        staged = {folder.name: tmp_path / "build/functions" / folder.name for folder in folders}
        return {name: FileSystem.fingerprint(str(folder)) for name, folder in staged.items()}

    return pack


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_an_asset_is_the_library_and_the_jobs_own_folder(
    jobs: tuple[Job, ...], tmp_path: Path
) -> None:
    assets.function_code(jobs[0].folder, tmp_path / "build")
    assert files(tmp_path / "build/functions/send_email") == [
        "redrive/worker/handler.py",
        "send_email/handler.py",
    ]
    assert assets.handler(jobs[0].folder) == "send_email.handler.handler"
    assert assets.handler(jobs[0].folder, "inspect") == "send_email.handler.inspect"


def test_the_real_asset_holds_the_real_sources_and_nothing_else(tmp_path: Path) -> None:
    assets.function_code(FUNCTIONS / "send_email", tmp_path)
    sources = {
        str(path.relative_to(FUNCTIONS))
        for name in ("redrive", "send_email")
        for path in FUNCTIONS.glob(f"{name}/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    testing = {path for path in sources if path.startswith("redrive/testing/")}
    assert testing
    assert files(tmp_path / "functions" / "send_email") == sorted(sources - testing)


def test_a_jobs_own_testing_folder_is_part_of_it(jobs: tuple[Job, ...], tmp_path: Path) -> None:
    (jobs[0].folder / "testing").mkdir()
    (jobs[0].folder / "testing" / "rig.py").touch()
    assets.function_code(jobs[0].folder, tmp_path / "build")
    assert "send_email/testing/rig.py" in files(tmp_path / "build/functions/send_email")


@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_every_user_may_read_an_asset_whatever_the_umask_of_the_clone(
    jobs: tuple[Job, ...], tmp_path: Path, umask: int
) -> None:
    tool, module = jobs[0].folder / "tool", jobs[0].folder / "handler.py"
    tool.touch()
    for path, mode in ((tool, 0o777), (module, 0o666)):
        path.chmod(mode & ~umask)
    assets.function_code(jobs[0].folder, tmp_path / "build")
    staged = tmp_path / "build/functions/send_email"
    (staged / "send_email" / "handler.py").chmod(0o600)  # staged by an earlier version
    assets.function_code(jobs[0].folder, tmp_path / "build")

    modes = {path.name: path.stat().st_mode & 0o777 for path in staged.rglob("*")}
    assert (modes["send_email"], modes["tool"], modes["handler.py"]) == (0o755, 0o755, 0o644)


def test_a_broken_link_is_refused_by_its_path(jobs: tuple[Job, ...], tmp_path: Path) -> None:
    (jobs[0].folder / "schema.json").symlink_to("gone.json")
    with pytest.raises(
        assets.AssetError, match=r"send_email/schema\.json cannot be packed .* Mend it or take it"
    ):
        assets.function_code(jobs[0].folder, tmp_path / "build")
    assert list((tmp_path / "build" / "functions").iterdir()) == []


def test_an_asset_that_another_synth_has_just_put_is_left_to_it(
    jobs: tuple[Job, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {job.spec.name: job.folder for job in jobs}
    target, rename = tmp_path / "build" / "asset", Path.rename
    put: list[int] = []

    def put_before(path: Path, to: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        assets.mirror(sources, target)
        put.append(target.stat().st_ino)
        return path.rename(to)

    monkeypatch.setattr(Path, "rename", put_before)
    assets.mirror(sources, target)
    assert [target.stat().st_ino] == put


def test_many_synths_at_once_agree_on_one_asset(jobs: tuple[Job, ...], tmp_path: Path) -> None:
    sources = {job.spec.name: job.folder for job in jobs}
    target = tmp_path / "build" / "asset"
    with ThreadPoolExecutor(8) as pool:
        for text in range(20):
            (jobs[0].folder / "handler.py").write_text(f"# {text}\n")
            list(pool.map(lambda _: assets.mirror(sources, target), range(8)))
            assert (target / "send_email" / "handler.py").read_text() == f"# {text}\n"
    assert list(target.parent.iterdir()) == [target]


def test_an_edit_in_one_job_changes_its_hash_alone(
    jobs: tuple[Job, ...], hashes: Callable[[], dict[str, str]]
) -> None:
    before = hashes()
    (jobs[0].folder / "handler.py").write_text("# edited\n")
    assert changed(before, hashes()) == {"send_email"}


def test_an_edit_in_replay_changes_its_hash_alone(
    jobs: tuple[Job, ...], hashes: Callable[[], dict[str, str]]
) -> None:
    before = hashes()
    (jobs[0].folder.parent / "replay" / "handler.py").write_text("# edited\n")
    assert changed(before, hashes()) == {"replay"}


def test_a_file_that_is_removed_leaves_the_asset(
    jobs: tuple[Job, ...], hashes: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    (jobs[0].folder / "mail.py").touch()
    hashes()
    (jobs[0].folder / "mail.py").unlink()
    hashes()
    assert "send_email/mail.py" not in files(tmp_path / "build/functions/send_email")


def test_an_edit_in_the_library_changes_every_hash(
    jobs: tuple[Job, ...], hashes: Callable[[], dict[str, str]]
) -> None:
    before = hashes()
    (jobs[0].folder.parent / "redrive" / "worker" / "handler.py").write_text("# edited\n")
    assert changed(before, hashes()) == {"replay", "send_email", "send_sms"}


def test_what_a_test_run_leaves_changes_no_hash(
    jobs: tuple[Job, ...], hashes: Callable[[], dict[str, str]]
) -> None:
    before = hashes()
    for folder in (jobs[0].folder, jobs[0].folder.parent / "redrive" / "worker"):
        litter(folder)
        os.utime(folder / "handler.py", (0, 0))
    assert changed(before, hashes()) == set()


def test_an_asset_that_is_right_already_is_left_alone(
    hashes: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    hashes()
    staged = tmp_path / "build/functions/send_email"
    before = staged.stat().st_ino
    hashes()
    assert staged.stat().st_ino == before
    assert sorted(path.name for path in staged.parent.iterdir()) == [
        "replay",
        "send_email",
        "send_sms",
    ]


def test_a_folder_without_a_handler_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        assets.AssetError, match=r"function 'send_fax' has no .*send_fax/handler\.py"
    ):
        assets.function_code(tmp_path / "send_fax", tmp_path / "build")


# The layer. A script stands in for uv: what uv itself does is not ours to test.


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Let `uv pip install` run lines of shell in its target; the file it returns logs its calls."""
    log = tmp_path / "calls"

    def use(lines: str) -> Path:
        script = tmp_path / "uv"
        script.write_text(
            "#!/bin/sh\nset -e\n"
            f'echo "$@" >> {log}\n'
            'while [ "$1" != --target ]; do shift; done\nmkdir -p "$2"; cd "$2"\n' + lines
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(uv, "find_uv_bin", lambda: str(script))
        return log

    return use


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "layer.txt"
    path.write_text("powertools==1 --hash=sha256:0\n")
    return path


def layers(build: Path) -> list[Path]:
    return sorted(build.glob("layer-*"))


PACKAGE = """
mkdir -p tools bin powertools-1.dist-info/licenses
touch tools/__init__.py bin/jp.py .lock
cd powertools-1.dist-info
touch METADATA RECORD INSTALLER REQUESTED direct_url.json uv_cache.json licenses/LICENSE
"""


def test_the_layer_holds_what_is_imported_and_the_licences(
    install: Callable[[str], Path], lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    log = install(PACKAGE)
    assets.layer_code(lock, tmp_path / "build")

    (layer,) = layers(tmp_path / "build")
    assert [path for path in files(layer) if not path.endswith(".pyc")] == [
        "python/powertools-1.dist-info/METADATA",
        "python/powertools-1.dist-info/licenses/LICENSE",
        "python/tools/__init__.py",
    ]
    call = log.read_text()
    for option in ("--require-hashes", "--only-binary :all:", "--python-version 3.13"):
        assert option in call
    assert list((tmp_path / "build").iterdir()) == [layer]


def test_a_layer_is_installed_again_only_when_its_lock_changes(
    install: Callable[[str], Path], lock: Path, tmp_path: Path
) -> None:
    log = install(PACKAGE)
    for _ in range(3):
        assets.layer_code(lock, tmp_path / "build")
    assert len(log.read_text().splitlines()) == 1

    lock.write_text("powertools==2 --hash=sha256:0\n")
    assets.layer_code(lock, tmp_path / "build")
    assert len(log.read_text().splitlines()) == 2
    assert len(layers(tmp_path / "build")) == 2


def test_a_layer_is_named_by_its_lock_whatever_else_is_in_it(
    install: Callable[[str], Path], lock: Path, tmp_path: Path
) -> None:
    """So that machines with and without Lambda's Python agree on the hash, byte code or not."""
    hashes = set()
    for build, lines in (("a", PACKAGE), ("b", PACKAGE + "touch ../tools/x.pyc")):
        install(lines)
        stack = Stack(App(outdir=str(tmp_path / build / "out")), "Stack")
        code = assets.layer_code(lock, tmp_path / build)
        lambda_.LayerVersion(stack, "Layer", code=code)
        location = code.bind(stack).s3_location
        assert location
        hashes.add(location.object_key)
    assert len(hashes) == 1


def test_a_layer_that_fails_says_why_and_leaves_nothing(
    install: Callable[[str], Path], lock: Path, tmp_path: Path
) -> None:
    install("touch half.py; echo 'hash mismatch for powertools' >&2; exit 1")
    with pytest.raises(
        assets.AssetError, match=r"cannot be installed:\nhash mismatch for powertools"
    ):
        assets.layer_code(lock, tmp_path / "build")
    assert list((tmp_path / "build").iterdir()) == []


def test_a_package_that_is_compiled_for_one_architecture_is_refused(
    install: Callable[[str], Path], lock: Path, tmp_path: Path
) -> None:
    install("touch _speedups.cpython-313-aarch64-linux-gnu.so")
    with pytest.raises(assets.AssetError, match=r"_speedups\S+\.so is compiled for one\. Give"):
        assets.layer_code(lock, tmp_path / "build")
    assert list((tmp_path / "build").iterdir()) == []


def test_a_missing_lock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(assets.AssetError, match=r"layer\.txt is missing"):
        assets.layer_code(tmp_path / "layer.txt", tmp_path / "build")


@pytest.mark.parametrize(
    ("python", "compiled"),
    [(f'exec "{sys.executable}" "$@"', True), ("echo no such version >&2; exit 127", False)],
    ids=["the runtime's Python", "a shim without its Python"],
)
def test_byte_code_is_added_where_the_runtimes_python_works(
    install: Callable[[str], Path],
    lock: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    python: str,
    compiled: bool,
) -> None:
    shim = tmp_path / "bin" / "python3.13"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\n{python}\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin:/bin")
    install(PACKAGE)
    assets.layer_code(lock, tmp_path / "build")

    (layer,) = layers(tmp_path / "build")
    found = list(layer.rglob("*.pyc"))
    assert bool(found) is compiled
    # Bytes 4 to 8 of a .pyc: 1 = by hash, 3 = by hash and checked against the source.
    assert all(path.read_bytes()[4:8] == b"\x01\0\0\0" for path in found)
    assert not any(str(tmp_path).encode() in path.read_bytes() for path in found)


def test_every_user_may_read_the_layer(
    install: Callable[[str], Path], lock: Path, tmp_path: Path
) -> None:
    install("umask 077" + PACKAGE)
    assets.layer_code(lock, tmp_path / "build")
    (layer,) = layers(tmp_path / "build")
    assert {path.stat().st_mode & 0o777 for path in layer.rglob("*")} == {0o755, 0o644}


def test_two_synths_at_once_agree_on_one_layer(
    install: Callable[[str], Path], lock: Path, tmp_path: Path
) -> None:
    build = tmp_path / "build"
    install(PACKAGE)
    assets.layer_code(lock, build)
    (layer,) = layers(build)
    other = tmp_path / "other"
    shutil.move(layer, other)
    # The other one finishes while this one still installs.
    install(PACKAGE + f"\ncp -r {other} {layer}")
    assets.layer_code(lock, build)
    assert layers(build) == [layer]


def test_the_real_layer_holds_powertools_and_leaves_boto3_to_lambda() -> None:
    layer = Path(assets.layer_code().path)
    modules = {path.name for path in (layer / "python").iterdir()}
    assert {"aws_lambda_powertools", "jmespath", "typing_extensions.py"} <= modules
    assert not {"boto3", "botocore", "pydantic"} & modules

"""The only place that knows how a function is packed: a library, its own folder, and a layer.

A function's asset is `redrive/` and its own folder, so that an edit in one job redeploys that job
alone. The layer is the dependencies that Lambda's Python lacks, all of them pure Python: one layer
for every architecture, no Docker.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import uv
from aws_cdk import AssetHashType
from aws_cdk import aws_lambda as lambda_

from stacks.catalogue import FUNCTIONS, ROOT

RUNTIME = lambda_.Runtime.PYTHON_3_13
PYTHON_VERSION = "3.13"

LIBRARY = FUNCTIONS / "redrive"
LAYER_LOCK = ROOT / "locks" / "layer.txt"
BUILD = ROOT / ".build"

# Goes into the layer's hash beside the lock: raise it when the recipe below changes.
_RECIPE = f"python {PYTHON_VERSION}, recipe 2"

_INSTALLERS_NOTES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_*")

# What tests and tools leave in a source folder must not change an asset.
_LITTER = shutil.ignore_patterns("__pycache__", "*.pyc", "*.pyo", ".*")

# In the library for those who test their jobs; no job runs it.
_TEST_DOUBLE = "testing"


class AssetError(ValueError):
    """A function or a layer cannot be packed; says what is missing."""


def function_code(folder: Path, build: Path = BUILD) -> lambda_.AssetCode:
    """The code asset of one folder, staged under `build`; its hash is that of its content.

    Raises:
        AssetError: the folder has no `handler.py`, or a file that cannot be read.
    """
    if not (folder / "handler.py").is_file():
        raise AssetError(f"function {folder.name!r} has no {folder / 'handler.py'}. Write it.")
    staged = build / "functions" / folder.name
    mirror({"redrive": LIBRARY, folder.name: folder}, staged)
    return lambda_.Code.from_asset(str(staged))


def handler(folder: Path, entry: str = "handler") -> str:
    """The name of `entry`, in the folder's `handler.py`, within the asset of `function_code`."""
    return f"{folder.name}.handler.{entry}"


def mirror(sources: Mapping[str, Path], target: Path) -> None:
    """Make `target` hold each source folder under its name, and nothing else.

    Leaves alone what is right already, so that two synths at once do not disturb each other.

    Raises:
        AssetError: a source cannot be read, or the target keeps changing.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(target) as scratch:
        for name, source in sources.items():
            _copy(source, scratch / "new" / name)
        _make_readable(scratch / "new")
        for attempt in range(10):
            # Another synth may put or move the target at any of these steps: then look again.
            with suppress(OSError):  # There is one.
                (scratch / "new").rename(target)
                return
            with suppress(FileNotFoundError):
                if _digest(scratch / "new") == _digest(target):
                    return
                target.rename(scratch / f"old-{attempt}")
    raise AssetError(f"{target} keeps changing. Is something else writing there?")


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, ignore=_left_out)
    except shutil.Error as error:
        path, _, why = error.args[0][0]
        raise AssetError(f"{path} cannot be packed ({why}). Mend it or take it away.") from None


def _left_out(folder: str, names: list[str]) -> set[str]:
    left_out = _LITTER(folder, names)
    return left_out | {_TEST_DOUBLE} if Path(folder) == LIBRARY else left_out


def _make_readable(folder: Path) -> None:
    """Lambda runs as another user, and CDK zips the modes: a umask of 077 would break it."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def layer_code(lock: Path = LAYER_LOCK, build: Path = BUILD) -> lambda_.AssetCode:
    """The layer asset, installed when its lock file is new and named by that file's hash.

    Raises:
        AssetError: the lock file is missing, or its packages cannot be installed.
    """
    if not lock.is_file():
        raise AssetError(f"{lock} is missing. It pins the layer's packages and their hashes.")
    digest = hashlib.sha256(_RECIPE.encode() + lock.read_bytes()).hexdigest()
    layer = build / f"layer-{digest[:16]}"
    if not layer.is_dir():
        _build_layer(lock, layer)
    return lambda_.Code.from_asset(
        str(layer), asset_hash=digest, asset_hash_type=AssetHashType.CUSTOM
    )


def _build_layer(lock: Path, layer: Path) -> None:
    """Install beside `layer` and rename, so that what is there is always whole."""
    layer.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(layer) as scratch:
        packages = scratch / "layer" / "python"
        _install(lock, packages)
        _strip(packages)
        _compile(packages)
        _make_readable(scratch / "layer")
        try:
            (scratch / "layer").rename(layer)
        except OSError:
            if not layer.is_dir():  # Another synth has been faster, with the same packages.
                raise


def _install(lock: Path, packages: Path) -> None:
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps"]
    command += ["--requirement", str(lock), "--require-hashes", "--only-binary", ":all:"]
    command += ["--target", str(packages), "--python-version", PYTHON_VERSION]
    # Any Linux will do: `_strip` refuses what is not pure Python.
    command += ["--python-platform", "aarch64-manylinux2014", "--link-mode", "copy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssetError(f"the layer's packages in {lock} cannot be installed:\n{done.stderr}")


def _strip(packages: Path) -> None:
    """Leave what is imported, and the licences; the rest is for installers."""
    compiled = sorted(path.name for path in packages.rglob("*.so"))
    if compiled:
        raise AssetError(
            f"the layer is for every architecture, but {', '.join(compiled)} is compiled for one."
            " Give the package to its job alone, or take one in pure Python."
        )
    shutil.rmtree(packages / "bin", ignore_errors=True)
    for litter in (".lock", *(f"*.dist-info/{name}" for name in _INSTALLERS_NOTES)):
        for path in packages.glob(litter):
            path.unlink()


def _compile(packages: Path) -> None:
    """Add the byte code, if this machine has the runtime's Python; it saves 50 ms of cold start.

    Unchecked, since Lambda's file times are not these; outside the asset's hash, since machines
    with and without that Python must agree on it.
    """
    command = [f"python{PYTHON_VERSION}", "-m", "compileall", "-q"]
    command += ["--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(packages), "-p", "/opt/python", str(packages)]
    # Not there, or only as the shim of a version manager: then there is no byte code.
    with suppress(FileNotFoundError):
        subprocess.run(command, capture_output=True, check=False)


@contextmanager
def _scratch(beside: Path) -> Iterator[Path]:
    """A folder on the same file system, so that a rename out of it is atomic."""
    with TemporaryDirectory(dir=beside.parent, prefix=f".{beside.name}-") as folder:
        yield Path(folder)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        status = path.stat()
        about = f"{path.relative_to(folder)}\0{status.st_mode}\0{status.st_size}\0"
        digest.update(about.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()

"""Which jobs a deployment has, and in which folder the code of each lives."""

import runpy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stacks.job_spec import JobSpec
from stacks.jobs import JOBS

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "functions"

# Jobs that only tests need. Named by its path, since `stacks` imports nothing of `tests`.
TESTS = ROOT / "tests" / "e2e" / "jobs" / "catalogue.py"


class CatalogueError(ValueError):
    """Two jobs with one name, or a catalogue that does not exist."""


@dataclass(frozen=True)
class Job:
    """A spec and the folder of its code."""

    spec: JobSpec
    folder: Path


@dataclass(frozen=True)
class Catalogue:
    """The jobs of one deployment.

    Raises:
        CatalogueError: two jobs would have the same construct id.
    """

    jobs: tuple[Job, ...]

    def __post_init__(self) -> None:
        """Refuse names that meet in PascalCase, `a_1b` and `a1b` too."""
        ids = Counter(job.spec.pascal_name for job in self.jobs)
        twice = [job.spec.name for job in self.jobs if ids[job.spec.pascal_name] > 1]
        if twice:
            raise CatalogueError(f"jobs with one name: {', '.join(twice)}. Rename all but one.")

    @classmethod
    def of(cls, specs: Iterable[JobSpec], functions: Path) -> "Catalogue":
        """The jobs whose folders lie in `functions`, each under its spec's name."""
        return cls(tuple(Job(spec, functions / spec.name) for spec in specs))

    def __add__(self, other: "Catalogue") -> "Catalogue":
        """Both catalogues' jobs in one deployment."""
        return Catalogue(self.jobs + other.jobs)


def catalogue(name: str = "production") -> Catalogue:
    """The catalogue that `-c catalogue=` names: `production`, or `tests` for the tests' jobs too.

    Raises:
        CatalogueError: there is no catalogue of that name, or two of its jobs share theirs.
    """
    production = Catalogue.of(JOBS, FUNCTIONS)
    if name == "production":
        return production
    if name == "tests":
        return production + Catalogue.of(runpy.run_path(str(TESTS))["JOBS"], TESTS.parent)
    raise CatalogueError(f"no catalogue {name!r}. Set -c catalogue= to production or tests.")

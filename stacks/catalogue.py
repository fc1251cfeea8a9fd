"""Which jobs a deployment has, and in which folder the code of each lives."""

import runpy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stacks.job_spec import JobSpec

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "functions"

# Jobs that only tests need. Named by its path, since `stacks` imports nothing of `tests`.
TESTS = ROOT / "tests" / "e2e" / "jobs" / "catalogue.py"

# What a job adds to the stack beside its construct: these outputs, after its name.
OUTPUTS = ("QueueUrl", "DeadLetterQueueUrl", "WorkerName", "PublishPolicyArn")

# What the stack has in any case, in some stages only, or from CDK.
OF_THE_STACK = (
    "BootstrapVersion",
    "CheckBootstrapVersion",
    "Dashboard",
    "DashboardName",
    "IdempotencyTable",
    "IdempotencyTableName",
    "Inspect",
    "InspectFunctionName",
    "JobsTable",
    "JobsTableName",
    "Key",
    "Layer",
    "NotifyTopic",
    "NotifyTopicArn",
    "PageTopic",
    "PageTopicArn",
    "Replay",
    "ReplayFunctionName",
)


class CatalogueError(ValueError):
    """Two jobs that need one name, or a catalogue that does not exist or fit the stage."""


@dataclass(frozen=True)
class Job:
    """A spec and the folder of its code."""

    spec: JobSpec
    folder: Path

    @property
    def construct_ids(self) -> tuple[str, ...]:
        """The ids that it takes in the stack: its construct's and its outputs'."""
        name = self.spec.pascal_name
        return (name, *(name + output for output in OUTPUTS))


@dataclass(frozen=True)
class Catalogue:
    """The jobs of one deployment.

    Raises:
        CatalogueError: two jobs, or a job and the stack, would use one construct id.
    """

    jobs: tuple[Job, ...]

    def __post_init__(self) -> None:
        """Refuse names that meet in PascalCase, `a_1b` and `a1b` too, or with an output's."""
        owners = dict.fromkeys(OF_THE_STACK, "the stack itself")
        for job in self.jobs:
            for construct_id in job.construct_ids:
                if construct_id in owners:
                    problem = f"{owners[construct_id]} has a {construct_id!r} already"
                    raise CatalogueError(f"job {job.spec.name!r}: {problem}. Rename the job.")
                owners[construct_id] = f"job {job.spec.name!r}"

    @classmethod
    def of(cls, specs: Iterable[JobSpec], functions: Path) -> "Catalogue":
        """The jobs whose folders lie in `functions`, each under its spec's name."""
        return cls(tuple(Job(spec, functions / spec.name) for spec in specs))

    def __add__(self, other: "Catalogue") -> "Catalogue":
        """Both catalogues' jobs in one deployment."""
        return Catalogue(self.jobs + other.jobs)


def catalogue(name: str = "production", *, retains_data: bool = False) -> Catalogue:
    """The catalogue that `-c catalogue=` names: `production`, or `tests` for the tests' jobs too.

    Raises:
        CatalogueError: there is no catalogue of that name, or two of its jobs share theirs, or the
            tests' jobs would stay for ever, in a stage that `retains_data`.
    """
    # Not at import: a spec that is refused is then the app's to tell.
    from stacks.jobs import JOBS

    production = Catalogue.of(JOBS, FUNCTIONS)
    if name == "production":
        return production
    if name == "tests" and retains_data:
        raise CatalogueError(
            "catalogue 'tests' is not for a stage that retains its data. Leave -c catalogue= out,"
            " or set another -c stage=."
        )
    if name == "tests":
        return production + Catalogue.of(runpy.run_path(str(TESTS))["JOBS"], TESTS.parent)
    raise CatalogueError(f"no catalogue {name!r}. Set -c catalogue= to production or tests.")

"""Which jobs a deployment has."""

from pathlib import Path

import pytest

from stacks.catalogue import FUNCTIONS, TESTS, Catalogue, CatalogueError, catalogue
from stacks.job_spec import JobSpec
from stacks.jobs import JOBS, SENDER


def names(jobs: Catalogue) -> list[str]:
    return [job.spec.name for job in jobs.jobs]


def test_production_has_the_catalogue_and_nothing_else() -> None:
    production = catalogue()
    assert [job.spec for job in production.jobs] == list(JOBS)
    assert {job.folder.parent for job in production.jobs} == {FUNCTIONS}


def test_tests_add_their_jobs_from_their_own_folder() -> None:
    both = catalogue("tests")
    assert names(both) == [*names(catalogue()), "probe", "ordered"]
    assert [job.folder.parent for job in both.jobs[-2:]] == [TESTS.parent] * 2
    assert [job.spec.fifo for job in both.jobs[-2:]] == [False, True]


def test_an_unknown_catalogue_is_refused_by_name() -> None:
    with pytest.raises(
        CatalogueError, match=r"no catalogue 'prod'\. Set -c catalogue= to production"
    ):
        catalogue("prod")


@pytest.mark.parametrize("other", ["send_email", "send_e_mail"])
def test_two_jobs_with_one_construct_id_are_refused(other: str) -> None:
    first = JobSpec("send_email" if other == "send_email" else "send_e_mail", key="id")
    with pytest.raises(CatalogueError, match=f"jobs with one name: {other}, {other}"):
        Catalogue.of((first,), Path("a")) + Catalogue.of((JobSpec(other, key="id"),), Path("b"))


def test_names_that_meet_in_pascal_case_are_refused() -> None:
    specs = (JobSpec("sync_1b", key="id"), JobSpec("sync1b", key="id"))
    with pytest.raises(CatalogueError, match="sync_1b, sync1b"):
        Catalogue.of(specs, Path("functions"))


def test_mail_is_sent_from_an_identity_that_the_job_may_use() -> None:
    (job,) = JOBS
    assert job.environment == {"SENDER": SENDER}
    (allowed,) = job.permissions
    assert allowed.actions == ("ses:SendEmail",)
    domain = SENDER.split("@")[1]
    assert allowed.resources == (f"arn:{{partition}}:ses:{{region}}:{{account}}:identity/{domain}",)

"""Which jobs a deployment has."""

from pathlib import Path

import pytest

from stacks.catalogue import (
    FUNCTIONS,
    OF_THE_STACK,
    TESTS,
    Catalogue,
    CatalogueError,
    catalogue,
)
from stacks.job_spec import JobSpec
from stacks.jobs import JOBS, SENDER
from stacks.stage import Stage
from tests.stacks.synthesis import jobs_stack


def named(*names: str) -> tuple[JobSpec, ...]:
    return tuple(JobSpec(name, key="id") for name in names)


def names(jobs: Catalogue) -> list[str]:
    return [job.spec.name for job in jobs.jobs]


def test_production_has_the_catalogue_and_nothing_else() -> None:
    production = catalogue()
    assert [job.spec for job in production.jobs] == list(JOBS)
    assert {job.folder.parent for job in production.jobs} == {FUNCTIONS}


def test_tests_add_their_jobs_from_their_own_folder() -> None:
    both = catalogue("tests")
    assert names(both) == [*names(catalogue()), "probe", "long", "ordered"]
    assert [job.folder.parent for job in both.jobs[-3:]] == [TESTS.parent] * 3
    assert [job.spec.fifo for job in both.jobs[-3:]] == [False, False, True]


def test_an_unknown_catalogue_is_refused_by_name() -> None:
    with pytest.raises(
        CatalogueError, match=r"no catalogue 'prod'\. Set -c catalogue= to production"
    ):
        catalogue("prod")


def test_the_jobs_of_the_tests_never_go_where_data_is_kept() -> None:
    with pytest.raises(CatalogueError, match=r"retains its data\. Leave -c catalogue= out"):
        catalogue("tests", retains_data=True)
    assert catalogue("production", retains_data=True) == catalogue()


def test_one_name_in_two_catalogues_is_refused() -> None:
    one, other = (Catalogue.of(named("send_email"), Path(folder)) for folder in "ab")
    with pytest.raises(CatalogueError, match=r"'send_email': job 'send_email' has a 'SendEmail'"):
        _ = one + other


@pytest.mark.parametrize(
    ("jobs", "problem"),
    [
        (("sync_1b", "sync1b"), "'sync1b': job 'sync_1b' has a 'Sync1b'"),
        (
            ("orders", "orders_dead_letter"),
            "'orders_dead_letter': job 'orders' has a 'OrdersDeadLetterQueueUrl'",
        ),
        (("orders_queue_url", "orders"), "'orders': job 'orders_queue_url' has a 'OrdersQueueUrl'"),
        (("layer",), "'layer': the stack itself has a 'Layer'"),
        (("key",), "'key': the stack itself has a 'Key'"),
        (("jobs_table",), "'jobs_table': the stack itself has a 'JobsTable'"),
        (("jobs_table_name",), "'jobs_table_name': the stack itself has a 'JobsTableName'"),
        (("idempotency_table",), "'idempotency_table': the stack itself has a 'IdempotencyTable'"),
        (
            ("replay_function_name",),
            "'replay_function_name': the stack itself has a 'ReplayFunctionName'",
        ),
        (
            ("inspect_function_name",),
            "'inspect_function_name': the stack itself has a 'InspectFunctionName'",
        ),
        (("bootstrap_version",), "'bootstrap_version': the stack itself has a 'BootstrapVersion'"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_names_that_meet_in_the_stack_are_refused(jobs: tuple[str, ...], problem: str) -> None:
    with pytest.raises(CatalogueError, match=rf"job {problem} already\. Rename the job"):
        Catalogue.of(named(*jobs), Path("functions"))


def test_every_id_in_the_stack_is_known_to_the_check(tmp_path: Path) -> None:
    stage = Stage(customer_managed_key=True)
    app, stack = jobs_stack(tmp_path, named("orders", "send_email"), stage)
    app.synth()
    jobs = Catalogue.of(named("orders", "send_email"), tmp_path).jobs
    ids = {child.node.id for child in stack.node.children}
    assert ids - {"CDKMetadata"} == {
        *OF_THE_STACK,
        *(name for job in jobs for name in job.construct_ids),
    }


def test_mail_is_sent_from_an_identity_that_the_job_may_use() -> None:
    (job,) = (job for job in JOBS if job.name == "send_email")
    assert job.environment == {"SENDER": SENDER}
    (allowed,) = job.permissions
    assert allowed.actions == ("ses:SendEmail",)
    domain = SENDER.split("@")[1]
    assert allowed.resources == (f"arn:{{partition}}:ses:{{region}}:{{account}}:identity/{domain}",)

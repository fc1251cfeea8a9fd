"""Stages from context."""

from datetime import timedelta

import pytest
from aws_cdk import RemovalPolicy

from stacks.job_spec import JobSpec
from stacks.stage import Stage, StageError


def test_without_context_the_stage_is_dev_and_cleans_up() -> None:
    stage = Stage.from_context({})
    assert stage == Stage(name="dev")
    assert stage.stack_name == "Redrive-dev"
    assert not stage.retains_data
    assert stage.removal_policy is RemovalPolicy.DESTROY


def test_prod_retains_its_data() -> None:
    stage = Stage.from_context({"stage": "prod"})
    assert stage.retains_data
    assert stage.removal_policy is RemovalPolicy.RETAIN


@pytest.mark.parametrize(
    ("value", "flag"),
    [("true", True), (True, True), ("1", True), ("false", False), (False, False), (None, False)],
)
def test_the_key_is_one_flag_from_the_command_line_or_the_file(value: object, flag: bool) -> None:
    assert Stage.from_context({"customer_managed_key": value}).customer_managed_key is flag


def test_a_flag_that_is_neither_is_refused() -> None:
    with pytest.raises(StageError, match="customer_managed_key='ture' is neither true nor false"):
        Stage.from_context({"customer_managed_key": "ture"})


@pytest.mark.parametrize("name", ["Dev", "pr/17", "-dev", "dev-", "1dev", "a" * 21, "dev_1"])
def test_a_stage_that_cannot_be_part_of_names_is_refused(name: str) -> None:
    with pytest.raises(StageError, match=r"is not 1 to 20 of a-z.*Name it like"):
        Stage.from_context({"stage": name})


@pytest.mark.parametrize("name", ["a", "dev", "pr-17", "a" * 20])
def test_a_stage_is_named_by_letters_digits_and_hyphens(name: str) -> None:
    assert Stage(name=name).stack_name == f"Redrive-{name}"


def test_a_stage_shortens_waits_and_never_lengthens_them() -> None:
    stage = Stage.from_context(
        {"lease_seconds": "3", "backoff_base_seconds": "0.5", "backoff_cap_seconds": 2}
    )
    slow = JobSpec("send_email", key="id")
    quick = JobSpec("probe", key="id", backoff_base=timedelta(seconds=0.1))

    short = stage.shorten(slow)
    assert (short.lease, short.backoff_base, short.backoff_cap) == (
        timedelta(seconds=3),
        timedelta(seconds=0.5),
        timedelta(seconds=2),
    )
    assert stage.shorten(quick).backoff_base == timedelta(seconds=0.1)
    assert Stage().shorten(slow) == slow


def test_a_shorter_cap_takes_the_base_with_it() -> None:
    stage = Stage(name="local", backoff_cap=timedelta(seconds=2))
    assert stage.shorten(JobSpec("probe", key="id")).backoff_base == timedelta(seconds=2)


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf", ""])
def test_a_wait_that_is_no_number_of_seconds_is_refused(value: str) -> None:
    with pytest.raises(StageError, match=r"lease_seconds=.* is not a number of seconds above 0"):
        Stage.from_context({"lease_seconds": value})


@pytest.mark.parametrize("name", ["lease_seconds", "backoff_base_seconds", "backoff_cap_seconds"])
def test_production_is_not_tuned_from_the_command_line(name: str) -> None:
    with pytest.raises(StageError, match=r"not for stage 'prod'\. Change the JobSpec instead"):
        Stage.from_context({"stage": "prod", name: "3"})


def test_addresses_are_parted_by_commas_and_each_counts_once() -> None:
    stage = Stage.from_context(
        {
            "page_email": " ann@example.com,bob@mail.example.com, ann@example.com,",
            "notify_email": "",
        }
    )
    assert stage.page_emails == ("ann@example.com", "bob@mail.example.com")
    assert stage.notify_emails == Stage().page_emails == ()


@pytest.mark.parametrize("email", ["ann", "ann@example", "ann@@example.com", "a b@example.com"])
@pytest.mark.parametrize("context", ["page_email", "notify_email"])
def test_what_is_no_address_is_refused(context: str, email: str) -> None:
    with pytest.raises(StageError, match=rf"'{email}' is no e-mail address\. Set page_email"):
        Stage.from_context({context: f"bob@example.com,{email}"})


def test_only_who_develops_is_told_of_nothing_but_pages() -> None:
    assert not Stage().notifies
    assert all(Stage(name=name).notifies for name in ("prod", "local", "pr-17"))

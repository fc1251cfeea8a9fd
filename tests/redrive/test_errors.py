"""The errors say what to do, and hold what would be lost."""

import pickle

import pytest

import redrive
from redrive import errors
from redrive.errors import PublishFailed, RetryLater, Unsent

BRANCHES = " ├─└│"


def all_errors():
    return [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, BaseException)
    ]


def test_every_error_of_redrive_is_a_redrive_error():
    assert len(all_errors()) > 10
    assert all(issubclass(one, errors.RedriveError) for one in all_errors())


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.__name__)
def test_the_tree_in_the_docstring_is_the_tree(error):
    (line,) = [
        line
        for line in errors.__doc__.splitlines()
        if line.strip(BRANCHES).partition(" ")[0] == error.__name__
    ]
    depth = len(line) - len(line.lstrip(BRANCHES))
    ancestors = [one for one in error.__mro__ if one in all_errors()]
    assert depth == 4 * len(ancestors)


@pytest.mark.parametrize("name", redrive.__all__)
def test_what_the_package_exports_is_there(name):
    assert getattr(redrive, name)


@pytest.mark.parametrize("seconds", [0, 0.5, 43_200])
def test_retry_later_takes_what_sqs_can_wait(seconds):
    assert RetryLater(seconds).seconds == seconds


@pytest.mark.parametrize("seconds", [-1, 43_201, float("nan"), float("inf")])
def test_retry_later_refuses_what_sqs_cannot_wait(seconds):
    with pytest.raises(ValueError, match="0 to 43200 seconds"):
        RetryLater(seconds)


def test_retry_later_tells_its_seconds_unless_it_is_told_something_better():
    assert str(RetryLater(1.5)) == "asked to be retried after 1.5 s"
    assert str(RetryLater(1.5, "the bank is closed")) == "the bank is closed"


def unsent(index):
    return Unsent(index, {"id": index}, "InternalError", "why")


def test_a_failed_publish_holds_every_payload_in_order():
    failed = PublishFailed(7, [unsent(1), unsent(4)], iter([{"id": 5}, {"id": 6}]))
    assert failed.sent == 7
    assert list(failed.payloads()) == [{"id": 1}, {"id": 4}, {"id": 5}, {"id": 6}]


def test_a_failed_publish_tells_the_first_reason_and_never_a_payload():
    told = str(PublishFailed(7, [unsent(1), unsent(4)]))
    assert told == "2 not published, 7 published; the first, at index 1: InternalError: why"


@pytest.mark.parametrize("kind", ["PublishFailed", "RetryLater"])
def test_errors_survive_a_process_pool(kind):
    error = {
        "PublishFailed": PublishFailed(1, [unsent(0)], [{"id": 1}]),
        "RetryLater": RetryLater(5),
    }[kind]
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), str(copy)) == (type(error), str(error))
    assert vars(copy) == vars(error)

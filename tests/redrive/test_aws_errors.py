"""One fault has several spellings, and a caller need not know which it gets."""

import pytest
from botocore.exceptions import ClientError

from redrive import aws_errors

PREFIX = "AWS.SimpleQueueService."


@pytest.mark.parametrize(
    "name", ["QueueDoesNotExist", "PurgeQueueInProgress", "BatchRequestTooLong"]
)
@pytest.mark.parametrize("spelling", ["Code", "QueryErrorCode"])
@pytest.mark.parametrize("prefix", [PREFIX, ""])
def test_a_fault_is_known_by_any_one_of_its_spellings(name, spelling, prefix):
    error = ClientError({"Error": {spelling: prefix + name}}, "SendMessage")
    assert name in aws_errors.names(error)


def test_a_fault_is_shown_without_its_prefix():
    error = ClientError({"Error": {"Code": PREFIX + "BatchRequestTooLong"}}, "SendMessageBatch")
    assert aws_errors.code(error) == "BatchRequestTooLong"


@pytest.mark.parametrize(
    ("code", "status", "passes"),
    [
        ("ThrottlingException", 400, True),
        ("RequestThrottled", 403, True),
        ("InternalError", 500, True),
        ("AccessDenied", 403, False),
    ],
)
def test_what_may_pass_is_told_by_status_and_name(code, status, passes):
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert aws_errors.may_pass(ClientError(response, "SendMessage")) is passes

"""Botocore's errors, told apart in one place: their names, and whether they may pass."""

from typing import Final

from botocore import exceptions as boto_errors
from botocore.exceptions import ClientError

_PREFIX: Final = "AWS.SimpleQueueService."
_ABOUT_A_MESSAGE: Final = {"BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue"}


def may_pass(error: Exception) -> bool:
    """Whether the same call may succeed a moment later: throttled, unavailable, no connection."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or any("Throttl" in name for name in names(error))
    return isinstance(error, boto_errors.ConnectionError | boto_errors.HTTPClientError)


def names(error: BaseException) -> set[str]:
    """All names of a fault: boto3's class and SQS's two protocols each spell it their own way."""
    found = {type(error).__name__}
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        found |= {str(told.get(spelling, "")) for spelling in ("Code", "QueryErrorCode")}
    return {name.removeprefix(_PREFIX) for name in found}


def code(error: BaseException) -> str:
    """The one name to show: AWS's code (`ThrottlingException`), else the class's."""
    if isinstance(error, ClientError):
        # Whoever makes a ClientError by hand may put a number or a blank there.
        told = str(error.response.get("Error", {}).get("Code") or "")
        return told.removeprefix(_PREFIX).strip() or type(error).__name__
    return type(error).__name__


def reason(error: BaseException) -> str:
    """What the error says, without botocore's frame around AWS's own words."""
    if isinstance(error, ClientError):
        return error.response.get("Error", {}).get("Message", "")
    return str(error)


def is_condition_failure(error: ClientError) -> bool:
    """Whether DynamoDB refused a write because its condition did not hold."""
    return code(error) == "ConditionalCheckFailedException"


def is_about_a_message(error: BaseException) -> bool:
    """Whether SQS refused a whole call because of one message in it, by a rule not among ours."""
    return bool(names(error) & _ABOUT_A_MESSAGE)

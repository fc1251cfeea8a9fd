from botocore.exceptions import ClientError

from redrive.aws_errors import code as error_type
from redrive.worker.causes import fingerprint, place
from send_email.mail import InvalidEmail, send


def raised(call) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def refuse(what: str) -> None:
    if what == "a":
        raise ValueError(f"no {what}, whoever asks")
    raise ValueError(f"not {what}")


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "for ann@example.com"}}, "SendEmail")


def test_failures_of_one_statement_have_one_fingerprint_whatever_their_message_says():
    assert fingerprint(raised(lambda: refuse("b"))) == fingerprint(raised(lambda: refuse("c")))


def test_failures_of_two_statements_have_two_fingerprints():
    assert fingerprint(raised(lambda: refuse("a"))) != fingerprint(raised(lambda: refuse("b")))


def test_an_aws_error_is_told_by_its_code():
    throttled, denied = client_error("ThrottlingException"), client_error("AccessDenied")
    assert error_type(throttled) == "ThrottlingException"
    assert fingerprint(throttled) != fingerprint(denied)
    assert error_type(ClientError({}, "SendEmail")) == "ClientError"


def test_the_place_is_the_jobs_own_line_and_holds_no_message():
    payload = {"to": "ann@example.com", "template": "receipt", "data": {}}
    error = raised(lambda: send(payload, ses=None, sender="", email_id="1", token="t"))
    assert isinstance(error, InvalidEmail)
    assert place(error).startswith("mail.py:")
    assert place(error).endswith(" _render")


def test_an_error_that_was_never_raised_has_no_place():
    assert place(KeyError()) is None
    assert len(fingerprint(KeyError())) == 8

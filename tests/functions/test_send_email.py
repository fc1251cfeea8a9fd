"""The work of the job, against boto3's own stub of SES."""

import boto3
import pytest
from botocore.stub import ANY, Stubber

from redrive import PermanentError, clients
from redrive.worker.testing import job_for
from send_email.handler import run
from send_email.mail import TEMPLATES, EmailRejected, InvalidEmail, send

RECEIPT = {
    "email_id": "receipt:ord_1",
    "to": "ann@example.com",
    "template": "receipt",
    "data": {"order": "ord_1", "total": "12.00 EUR"},
}


@pytest.fixture
def ses():
    client = boto3.client(
        "sesv2", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    with Stubber(client) as stub:
        client.stub = stub
        yield client
        stub.assert_no_pending_responses()


def send_with(ses, payload, token="send_email:receipt:ord_1", email_id="receipt:ord_1"):
    return send(payload, ses=ses, sender="shop@example.com", email_id=email_id, token=token)


def expected(subject=ANY, text=ANY, headers=ANY):
    return {
        "FromEmailAddress": "shop@example.com",
        "Destination": {"ToAddresses": ["ann@example.com"]},
        "Content": {
            "Simple": {
                "Subject": {"Data": subject, "Charset": "UTF-8"},
                "Body": {"Text": {"Data": text, "Charset": "UTF-8"}},
                "Headers": headers,
            }
        },
    }


def test_a_receipt_is_sent_with_its_id_and_token_as_headers(ses):
    request = expected(
        "Your receipt for order ord_1",
        "Thank you for your order ord_1.\nTotal: 12.00 EUR\n",
        [
            {"Name": "X-Email-Id", "Value": "receipt:ord_1"},
            {"Name": "X-Redrive-Token", "Value": "send_email:receipt:ord_1"},
        ],
    )
    ses.stub.add_response("send_email", {"MessageId": "ses-1"}, request)
    assert send_with(ses, RECEIPT) == {"ses_message_id": "ses-1"}


def test_a_header_carries_any_key_as_printable_ascii(ses):
    headers = [
        {"Name": "X-Email-Id", "Value": "%C3%A9%0Aid"},
        {"Name": "X-Redrive-Token", "Value": "x" * 870},
    ]
    ses.stub.add_response("send_email", {"MessageId": "1"}, expected(headers=headers))
    send_with(ses, RECEIPT, email_id="é\nid", token="x" * 2000)


def test_a_value_cannot_add_lines_to_the_subject(ses):
    data = {"order": "1\r\nBcc: all@example.com", "total": "1"}
    request = expected(subject="Your receipt for order 1 Bcc: all@example.com")
    ses.stub.add_response("send_email", {"MessageId": "1"}, request)
    send_with(ses, RECEIPT | {"data": data})


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_says_which_value_it_lacks(ses, template):
    with pytest.raises(InvalidEmail, match=rf"template '{template}' needs `data\.\w+`"):
        send_with(ses, RECEIPT | {"template": template, "data": {}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"to": None}, "`to` must be a non-empty string"),
        ({"to": " "}, "`to` must be a non-empty string"),
        ({"to": ["ann@example.com"]}, "`to` must be a non-empty string"),
        ({"template": "recipt"}, "no template 'recipt'; there are receipt, welcome, report"),
        ({"template": None}, "`template` must be a non-empty string"),
        ({"data": "ord_1"}, "`data` must be an object"),
    ],
)
def test_a_payload_that_is_no_email_is_permanent_and_says_why(ses, change, message):
    with pytest.raises(InvalidEmail, match=message):
        send_with(ses, RECEIPT | change)
    assert issubclass(InvalidEmail, PermanentError)


@pytest.mark.parametrize(
    "code",
    [
        "BadRequestException",
        "MessageRejected",
        "MailFromDomainNotVerifiedException",
        "NotFoundException",
    ],
)
def test_what_ses_will_never_send_is_permanent(ses, code):
    ses.stub.add_client_error("send_email", code, "Email address is not verified.", 400)
    with pytest.raises(EmailRejected, match=f"{code}: Email address is not verified."):
        send_with(ses, RECEIPT)
    assert issubclass(EmailRejected, PermanentError)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("TooManyRequestsException", 429),
        ("LimitExceededException", 400),
        ("SendingPausedException", 400),
        ("InternalServiceErrorException", 500),
        ("ServiceUnavailable", 503),
        ("AccessDeniedException", 403),
    ],
)
def test_what_heals_by_itself_is_left_for_a_retry(ses, code, status):
    ses.stub.add_client_error("send_email", code, "", status)
    with pytest.raises(Exception, match=code) as caught:
        send_with(ses, RECEIPT)
    assert not isinstance(caught.value, PermanentError)


def test_botocore_does_not_repeat_a_call_that_ses_may_have_accepted(monkeypatch):
    monkeypatch.setenv("SENDER", "shop@example.com")
    made = []
    monkeypatch.setattr(
        clients, "shared", lambda *service, **options: made.append((service, options))
    )
    with pytest.raises(AttributeError):  # there is no client to send by
        run(job_for(RECEIPT))
    assert made == [(("sesv2",), {"attempts": 1})]

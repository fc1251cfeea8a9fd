import json
import random
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from local.mail_sink import MailSink


@pytest.fixture
def sink():
    with MailSink(random.Random(7)) as sink:
        yield sink


@pytest.fixture
def ses(sink):
    return boto3.client(
        "sesv2",
        endpoint_url=sink.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, proxies={}, max_pool_connections=20),
    )


def send(ses, to="ann@example.com", email_id="receipt:ord_1"):
    return ses.send_email(
        FromEmailAddress="no-reply@example.com",
        Destination={"ToAddresses": [to]},
        Content={
            "Simple": {
                "Subject": {"Data": "Your receipt"},
                "Body": {"Text": {"Data": "Thank you."}},
                "Headers": [
                    {"Name": "X-Email-Id", "Value": email_id},
                    {"Name": "X-Redrive-Token", "Value": "send_email:receipt:ord_1#0"},
                ],
            }
        },
    )


def ask(sink, method, path, body=None):
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(sink.url + path, data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_an_accepted_mail_has_an_id_and_is_in_the_list_of_sent_ones(sink, ses):
    message_id = send(ses)["MessageId"]

    status, (mail,) = ask(sink, "GET", "/sent")
    assert message_id
    assert status == 200
    assert mail.keys() == {"to", "subject", "email_id", "at"}
    assert (mail["to"], mail["subject"]) == ("ann@example.com", "Your receipt")
    assert mail["email_id"] == "receipt:ord_1"
    assert datetime.fromisoformat(mail["at"]).tzinfo


@pytest.mark.parametrize("to", ["ann", "", "ann@nowhere.invalid", "Ann <ann@x.INVALID>"])
def test_an_impossible_address_is_refused_as_ses_would(sink, ses, to):
    with pytest.raises(ses.exceptions.BadRequestException, match=f"Illegal address: {to}"):
        send(ses, to=to)

    assert sink.sent() == []


@pytest.mark.parametrize(
    ("fault", "exception"),
    [
        ({"status": 429}, "TooManyRequestsException"),
        ({"status": 400}, "BadRequestException"),
        ({"status": 400, "error": "MessageRejected"}, "MessageRejected"),
        ({"status": 404}, "NotFoundException"),
    ],
)
def test_a_fault_arrives_as_the_exception_class_of_the_ses_client(sink, ses, fault, exception):
    ask(sink, "POST", "/faults", fault)

    with pytest.raises(getattr(ses.exceptions, exception)):
        send(ses)

    assert sink.sent() == []


def test_an_outage_ends_by_itself(sink, ses):
    ask(sink, "POST", "/faults", {"status": 503, "seconds": 0.3})

    with pytest.raises(ClientError) as raised:
        send(ses)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert raised.value.response["Error"]["Code"] == "ServiceUnavailableException"

    deadline = time.monotonic() + 5
    while not sink.sent():
        assert time.monotonic() < deadline
        try:
            send(ses)
        except ClientError:
            time.sleep(0.05)


def test_an_outage_of_zero_seconds_ends_the_one_before(sink, ses):
    ask(sink, "POST", "/faults", {"status": 503, "seconds": 60})
    ask(sink, "POST", "/faults", {"seconds": 0})

    assert send(ses)


def test_the_ratio_is_the_share_of_mails_that_fail(sink, ses):
    ask(sink, "POST", "/faults", {"status": 503, "ratio": 0.5})

    for number in range(40):
        with suppress(ClientError):
            send(ses, email_id=str(number))

    rng = random.Random(7)
    expected = [str(number) for number in range(40) if rng.random() >= 0.5]
    assert [mail["email_id"] for mail in sink.sent()] == expected
    assert ask(sink, "GET", "/faults")[1]["mails"] == 40 - len(expected)


def test_a_delayed_answer_is_late_but_the_mail_is_sent(sink, ses):
    ask(sink, "POST", "/faults", {"delay": 0.3})

    started = time.monotonic()
    send(ses)

    assert time.monotonic() - started >= 0.3
    assert len(sink.sent()) == 1


def test_closing_does_not_wait_for_a_delayed_answer(ses, sink):
    ask(sink, "POST", "/faults", {"delay": 900})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send, ses)
        while not sink.sent():
            time.sleep(0.01)
        sink.__exit__()
        answer.exception(timeout=10)


def test_delete_forgets_what_was_sent(sink, ses):
    send(ses)

    assert ask(sink, "DELETE", "/sent") == (200, {})
    assert ask(sink, "GET", "/sent") == (200, [])


def test_mails_sent_at_once_are_all_kept(sink, ses):
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda number: send(ses, email_id=str(number)), range(200)))

    assert sorted(int(mail["email_id"]) for mail in sink.sent()) == list(range(200))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"status": 200}, "status: must be a whole number from 400 to 599, or null"),
        ({"status": "503"}, "status: must be"),
        ({"status": True}, "status: must be"),
        ({"seconds": -1}, "seconds: must be a number from 0 to 3600"),
        ({"seconds": None}, "seconds: must be"),
        ({"ratio": 1.5}, "ratio: must be a number from 0 to 1"),
        ({"delay": 1e9}, "delay: must be a number from 0 to 900"),
        ({"delay": "NaN"}, "delay: must be"),
        ({"error": "MessageRejected"}, "error: must be text, beside a status"),
        ({"code": 503}, "an object is expected; its fields may be status, seconds, ratio, delay"),
        ([], "an object is expected"),
        (b"{", "the body is not JSON"),
        (b'{"seconds": NaN}', "seconds: must be"),
    ],
)
def test_a_wrong_fault_is_refused_with_the_field_and_what_is_allowed(sink, fault, told):
    status, answer = ask(sink, "POST", "/faults", fault)

    assert status == 400
    assert told in answer["message"]


@pytest.mark.parametrize("body", [b"{}", b"[]", b"\xff", b'{"Destination": 1}', b'{"Content": {}}'])
def test_what_is_no_mail_is_refused(sink, body):
    assert ask(sink, "POST", "/v2/email/outbound-emails", body)[0] == 400


def test_an_unknown_address_tells_those_that_there_are(sink):
    status, answer = ask(sink, "GET", "/mails")

    assert status == 404
    assert "GET /sent" in answer["message"]


def test_it_listens_on_this_machine_only(sink):
    assert sink.url.startswith("http://127.0.0.1:")

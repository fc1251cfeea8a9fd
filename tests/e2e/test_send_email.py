"""The first job, on the deployed stack."""

import json
from uuid import uuid4

import pytest

from tests.e2e.stack import cause_of, eventually


@pytest.fixture
def email_id() -> str:
    return f"receipt:{uuid4()}"


def receipt(email_id: str, to: str = "ann@example.com") -> dict:
    data = {"order": "ord_1", "total": "12.00 EUR"}
    return {"email_id": email_id, "to": to, "template": "receipt", "data": data}


def test_one_job_in_three_messages_is_one_mail(stack, sink, email_id):
    for _ in range(3):
        stack.send("send_email", receipt(email_id))
    eventually(lambda: sink.sent(email_id), what="the mail is sent")
    stack.await_empty("send_email")
    (mail,) = sink.sent(email_id)
    assert mail["to"] == "ann@example.com"
    assert mail["subject"] == "Your receipt for order ord_1"


def test_a_published_job_is_sent_and_its_id_tells_which_it_is(stack, sink, email_id):
    assert stack.publisher.publish("send_email", receipt(email_id)) == f"send_email:{email_id}"
    eventually(lambda: sink.sent(email_id), what="the mail is sent")


def test_an_impossible_address_is_a_dead_letter_with_its_cause_on_the_first_attempt(
    stack, sink, email_id
):
    # Spaces that no JSON writer would put there: the body must come back byte for byte.
    body = json.dumps(receipt(email_id, to="ann@nowhere.invalid"), indent=3)
    attributes = {
        "text": {"DataType": "String", "StringValue": "täxt"},
        "number": {"DataType": "Number.int", "StringValue": "7"},
        "custom": {"DataType": "String.uuid", "StringValue": email_id},
        "binary": {"DataType": "Binary", "BinaryValue": b"\x00\xff\n"},
        "four": {"DataType": "String", "StringValue": "4"},
        "five": {"DataType": "String", "StringValue": "5"},
        "six": {"DataType": "String", "StringValue": "6"},
    }
    message_id = stack.send("send_email", body, MessageAttributes=attributes)
    dead = stack.await_dead_letter("send_email", body)
    kept = {name: dead["MessageAttributes"][name] for name in attributes}
    assert kept == attributes
    envelope = json.loads(dead["MessageAttributes"]["redrive"]["StringValue"])
    assert envelope["v"] == 1
    assert envelope["id"] == f"send_email:{email_id}"
    assert envelope["message_id"] == message_id
    assert envelope["queue"].endswith(stack.queue_url("send_email").rpartition("/")[2])
    cause = envelope["cause"]
    assert cause["type"] == "EmailRejected"
    assert "BadRequestException" in cause["message"]
    assert (cause["attempts"], cause["receives"]) == (1, 1)
    assert cause["function"] == stack.outputs["SendEmailWorkerName"]
    assert cause["request_id"]
    assert sink.sent(email_id) == []


def test_while_ses_is_down_jobs_wait_and_then_each_is_sent_once(stack, sink):
    ids = [f"welcome:{uuid4()}" for _ in range(10)]
    sink.fail(status=503, seconds=3)
    payloads = [
        {"email_id": id_, "to": "ann@example.com", "template": "welcome", "data": {"name": "Ann"}}
        for id_ in ids
    ]
    assert stack.publisher.publish_many("send_email", payloads) == len(ids)
    for id_ in ids:
        eventually(lambda id_=id_: sink.sent(id_), what=f"{id_} is sent")
    stack.await_empty("send_email")
    assert [len(sink.sent(id_)) for id_ in ids] == [1] * len(ids)


def test_the_row_of_a_dead_message_tells_its_cause(stack, sink, email_id):
    body = json.dumps(receipt(email_id, to="nobody"))
    message_id = stack.send("send_email", body)
    cause = cause_of(stack.await_dead_letter("send_email", body))
    (row,) = eventually(
        lambda: stack.rows(f"send_email:{email_id}", f"message#{message_id}"), what="its row"
    )
    assert row["dead"] == {"BOOL": True}
    assert json.loads(row["cause"]["S"]) == cause

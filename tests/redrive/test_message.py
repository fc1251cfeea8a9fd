"""Reading what anyone may have put into a queue, and the `redrive` attribute."""

import json
import string
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import limits
from redrive.errors import NotAnSqsEvent, UnusablePayload
from redrive.message import (
    Cause,
    Envelope,
    Message,
    compile_key,
    is_control_message,
    iso_time,
    job_id,
    message_bytes,
    read_payload,
    read_time,
    render_key,
    sendable_attributes,
)

# --- odd bodies -----------------------------------------------------------------------------------

DEEP = 100_000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("hello", "not JSON"),
        ("", "not JSON"),
        (" ", "not JSON"),
        ("null", "JSON null"),
        ("[]", "JSON array"),
        ('[{"id": 1}]', "JSON array"),
        ('"x"', "JSON string"),
        ('"{\\"id\\": 1}"', "JSON string"),
        ("12", "JSON number"),
        ("1.5", "JSON number"),
        ("true", "JSON true or false"),
        ("NaN", "NaN is no number"),
        ('{"n": NaN}', "NaN is no number"),
        ('{"n": [-Infinity]}', "-Infinity is no number"),
        ('{"n": 1e400}', "1e400 is no number"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ('{"deep": [{"a": 1, "\\u0061": 2}]}', "stands twice"),
        ('\ufeff{"id": 1}', "not JSON"),
        ('{"id": 1} trailing', "Extra data at character 10"),
        ('{"id": 1', "not JSON"),
        ("{'id': 1}", "not JSON"),
        ('{"id": 1,}', "not JSON"),
        ('{"text": "a\nb"}', "not JSON"),
        ("[" * DEEP + "]" * DEEP, "nested too deeply"),
        ('{"a":' * DEEP + "1" + "}" * DEEP, "nested too deeply"),
        ('{"n": ' + "9" * 5000 + "}", "not JSON"),
        ("<xml/>", "not JSON"),
        ("\x00\x1f", "not JSON"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_a_body_that_is_no_json_object_says_what_it_is(body, reason):
    with pytest.raises(UnusablePayload, match=reason):
        read_payload(body)


@pytest.mark.parametrize("body", [None, 7, b"\xff{}", ["{}"]])
def test_a_body_that_is_no_text_is_unusable_too(body):
    with pytest.raises(UnusablePayload):
        read_payload(body)


def test_the_reason_quotes_nothing_of_the_body():
    with pytest.raises(UnusablePayload) as caught:
        read_payload('{"iban": "DE02 1203 0000", "name": Ada}')
    assert "Ada" not in str(caught.value)
    assert "DE02" not in str(caught.value)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"id": 1},
        {"text": "ü🙂\u0000\ud83d"},
        {"n": [1e308, -0.5, 2**70]},
        {"nested": {"a": {"a": 1}, "b": {"a": 2}}},
    ],
)
def test_a_json_object_is_read_as_it_is(payload):
    assert read_payload(json.dumps(payload)) == payload
    assert read_payload(f"\r\n\t {json.dumps(payload)} ") == payload


@settings(deadline=None)
@given(st.text() | st.binary().map(lambda raw: raw.decode(errors="surrogateescape")))
def test_no_text_does_worse_than_to_be_unusable(body):
    with suppress(UnusablePayload):
        assert isinstance(read_payload(body), dict)


# --- wrapped and control messages -----------------------------------------------------------------


def notification(message, **changes):
    fields = {
        "Type": "Notification",
        "MessageId": "m",
        "TopicArn": "arn:aws:sns:eu-west-1:123456789012:orders",
        "Message": message if isinstance(message, str) else json.dumps(message),
        "Timestamp": "2026-11-29T10:00:00.000Z",
    }
    return json.dumps({k: v for k, v in (fields | changes).items() if v is not None})


def test_what_sns_wrapped_is_the_same_job_as_what_was_sent_raw():
    payload = {"id": "a", "n": 1.5}
    assert read_payload(notification(payload)) == read_payload(json.dumps(payload)) == payload


@pytest.mark.parametrize(
    "payload",
    [
        {"Type": "Notification", "Message": "{}", "id": 1},
        {"Type": "Notification", "Message": "{}", "TopicArn": None},
        {"Type": "Notification", "Message": "{}", "TopicArn": "mine"},
        {"Type": "Notification", "Message": {"id": 1}, "TopicArn": "arn:aws:sns:::t"},
        {"Type": "letter", "Message": "{}", "TopicArn": "arn:aws:sns:::t"},
        {"Message": "{}", "TopicArn": "arn:aws:sns:::t"},
    ],
)
def test_a_job_that_has_such_names_of_its_own_is_left_alone(payload):
    assert read_payload(json.dumps(payload)) == payload


def test_only_one_wrapping_is_taken_off():
    inner = json.loads(notification({"id": 1}))
    assert read_payload(notification(inner)) == inner


@pytest.mark.parametrize("message", ["plain text", "[]", ""])
def test_a_wrapped_message_that_is_no_object_is_unusable(message):
    with pytest.raises(UnusablePayload):
        read_payload(notification(message))


S3_TEST = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b", "RequestId": "r"}


@pytest.mark.parametrize(
    ("payload", "control"),
    [
        (S3_TEST, True),
        ({"Event": "autoscaling:TEST_NOTIFICATION"}, True),
        ({"notificationType": "AmazonSnsSubscriptionSucceeded"}, True),
        (S3_TEST | {"Event": "s3:Other"}, False),
        ({"event": "s3:TestEvent"}, False),
        ({"Event": ["s3:TestEvent"]}, False),
        ({"data": S3_TEST}, False),
        ({}, False),
    ],
)
def test_a_services_test_message_is_known_by_its_exact_words(payload, control):
    assert is_control_message(read_payload(json.dumps(payload))) is control
    assert is_control_message(read_payload(notification(payload))) is control


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("receipt:ord_1", "receipt:ord_1"),
        ("ü/🙂", "ü/🙂"),
        (" ", " "),
        (7, "7"),
        ("7", "7"),
        (0, "0"),
        (-1, "-1"),
        (2**70, str(2**70)),
        (False, "false"),
        (True, "true"),
        ("k" * limits.KEY_BYTES, "k" * limits.KEY_BYTES),
        ("ü" * 256, "ü" * 256),
    ],
)
def test_a_key_is_a_text_an_integer_or_a_truth(value, key):
    assert render_key({"id": value}, "id") == key


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({}, "no value at `id`"),
        ({"id": None}, "no value at `id`"),
        ({"id": ""}, "no value at `id`"),
        ({"id": []}, "JSON array"),
        ({"id": [None, None]}, "JSON array"),
        ({"id": ["a", None]}, "JSON array"),
        ({"id": {}}, "JSON object"),
        ({"id": {"a": 1}}, "JSON object"),
        ({"id": 7.0}, "JSON number"),
        ({"id": "k" * 513}, "513 bytes; a key has at most 512"),
        ({"id": "ü" * 257}, "514 bytes"),
        ({"id": 10**600}, "601 bytes"),
        ({"id": "\ud83d"}, "not valid Unicode"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_key_is_refused_and_never_shared(payload, reason):
    with pytest.raises(UnusablePayload, match=reason):
        render_key(payload, "id")


@pytest.mark.parametrize(
    ("expression", "payload", "key"),
    [
        ("order.id", {"order": {"id": 7}}, "7"),
        ('detail."order-id"', {"detail": {"order-id": "a"}}, "a"),
        ("items[0].id", {"items": [{"id": "a"}]}, "a"),
        ("join(':', [kind, id])", {"kind": "receipt", "id": "7"}, "receipt:7"),
        ("Records[0].s3.object.key", {"Records": [{"s3": {"object": {"key": "k"}}}]}, "k"),
    ],
)
def test_a_key_is_found_by_jmespath(expression, payload, key):
    assert render_key(payload, expression) == key


@pytest.mark.parametrize(
    ("expression", "payload"),
    [
        ("order.id", {"order": 7}),
        ("join(':', [kind, id])", {"kind": "receipt"}),
        ("join(':', [kind, id])", {"kind": "receipt", "id": 7}),
        ("length(id)", {"id": 7}),
    ],
)
def test_a_payload_that_an_expression_does_not_fit_is_unusable(expression, payload):
    with pytest.raises(UnusablePayload, match=r"order\.id|join|length"):
        render_key(payload, expression)


@pytest.mark.parametrize("expression", ["a..b", "", "[", "nosuch("])
def test_an_expression_that_is_none_fails_when_it_is_compiled(expression):
    with pytest.raises(ValueError, match=r".+"):
        compile_key(expression)


def test_an_id_of_a_job_is_its_name_and_its_key():
    assert job_id("send_email", "receipt:ord_1") == "send_email:receipt:ord_1"


# --- records --------------------------------------------------------------------------------------


def record(**changes):
    fields = {
        "messageId": "m-1",
        "receiptHandle": "h-1",
        "body": '{"id": 1}',
        "attributes": {
            "ApproximateReceiveCount": "3",
            "SentTimestamp": "1767225600123",
            "SenderId": "AIDATEST",
            "ApproximateFirstReceiveTimestamp": "1767225600456",
        },
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:q",
        "awsRegion": "eu-west-1",
    }
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def test_a_record_becomes_a_message():
    message = Message.from_record(record())
    assert (message.id, message.receipt_handle, message.body) == ("m-1", "h-1", '{"id": 1}')
    assert (message.receives, message.sent_at) == (3, 1767225600123)
    assert (message.group_id, message.trace_header, message.envelope) == (None, None, None)


@pytest.mark.parametrize(
    "missing", ["messageId", "receiptHandle", "body", "attributes"], ids=lambda name: name
)
def test_a_record_that_lacks_a_field_is_refused_by_its_name(missing):
    with pytest.raises(NotAnSqsEvent, match=missing):
        Message.from_record(record(**{missing: ...}))


@pytest.mark.parametrize("missing", ["ApproximateReceiveCount", "SentTimestamp"])
def test_a_record_that_lacks_a_system_attribute_is_refused_by_its_name(missing):
    system = dict(record()["attributes"])
    del system[missing]
    with pytest.raises(NotAnSqsEvent, match=missing):
        Message.from_record(record(attributes=system))


@pytest.mark.parametrize("empty", ["messageId", "receiptHandle"])
@pytest.mark.parametrize("value", ["", None, 7])
def test_a_record_with_an_empty_id_is_refused(empty, value):
    with pytest.raises(NotAnSqsEvent, match=empty):
        Message.from_record(record(**{empty: value}))


@pytest.mark.parametrize(
    "changes",
    [
        {"body": None},
        {"body": 7},
        {"attributes": None},
        {"attributes": {"ApproximateReceiveCount": "many", "SentTimestamp": "0"}},
        {"attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": None}},
        {"messageAttributes": {"a": "x"}},
        {"messageAttributes": {"a": {"dataType": "Binary", "binaryValue": "A"}}},
        {"messageAttributes": {"a": {"stringValue": "x"}}},
    ],
    ids=str,
)
def test_a_record_that_sqs_cannot_have_written_is_refused(changes):
    with pytest.raises(NotAnSqsEvent, match="a record"):
        Message.from_record(record(**changes))


def test_a_record_may_come_without_message_attributes():
    assert Message.from_record(record(messageAttributes=None)).attributes == {}
    assert Message.from_record(record(messageAttributes=...)).attributes == {}


FROM_LAMBDA = {
    "text": {
        "stringValue": "ü",
        "stringListValues": [],
        "binaryListValues": [],
        "dataType": "String",
    },
    "number": {"stringValue": "7", "dataType": "Number.int"},
    "uuid": {"stringValue": "0b6f", "dataType": "String.uuid", "binaryListValues": []},
    "raw": {"binaryValue": "AP8=", "dataType": "Binary", "stringListValues": []},
    "png": {"binaryValue": "AP8=", "dataType": "Binary.png"},
}
FROM_THE_API = {
    "text": {"StringValue": "ü", "DataType": "String", "StringListValues": []},
    "number": {"StringValue": "7", "DataType": "Number.int"},
    "uuid": {"StringValue": "0b6f", "DataType": "String.uuid", "BinaryListValues": []},
    "raw": {"BinaryValue": b"\x00\xff", "DataType": "Binary"},
    "png": {"BinaryValue": bytearray(b"\x00\xff"), "DataType": "Binary.png"},
}
SENDABLE = {
    "text": {"DataType": "String", "StringValue": "ü"},
    "number": {"DataType": "Number.int", "StringValue": "7"},
    "uuid": {"DataType": "String.uuid", "StringValue": "0b6f"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    "png": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
}


@pytest.mark.parametrize("received", [FROM_LAMBDA, FROM_THE_API, SENDABLE])
def test_received_attributes_can_be_sent_again_from_either_spelling(received):
    assert sendable_attributes(received) == SENDABLE


@pytest.mark.parametrize(
    ("body", "attributes", "size"),
    [
        ("abc", {}, 3),
        ("ü🙂", {}, 6),
        ("\ud83d", {}, 3),
        ("", {"nä": {"DataType": "String", "StringValue": "ü"}}, 3 + 6 + 2),
        ("a", {"b": {"DataType": "Binary", "BinaryValue": b"\xff" * 9}}, 1 + 1 + 6 + 9),
    ],
)
def test_a_size_is_bytes_of_body_names_types_and_values(body, attributes, size):
    assert message_bytes(body, attributes) == size


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1767225600123, "2026-01-01T00:00:00.123Z"),
        (1767225600999.9, "2026-01-01T00:00:00.999Z"),
    ],
)
def test_a_time_is_iso_8601_in_utc_with_milliseconds(milliseconds, text):
    assert iso_time(milliseconds) == text


# --- the `redrive` attribute ----------------------------------------------------------------------

CAUSE = Cause(
    type="TimeoutError",
    message="the bank is closed",
    fingerprint="0123abcd",
    attempts=12,
    receives=14,
    failed_at="2026-11-29T10:00:00.123Z",
    function="SendEmailWorker",
    request_id="0b6f",
    log_stream="2026/11/29/[$LATEST]abc",
)
ENVELOPE = Envelope(
    id="send_email:receipt:ord_1",
    message_id="m-1",
    queue="https://sqs/q",
    sent_at="2026-11-29T09:00:00.000Z",
    replays=2,
    force=1,
    cause=CAUSE,
    expires_at="2026-11-30T09:00:00.000Z",
    metadata={"tenant": "ü", "nothing": None},
)


def test_an_envelope_is_ascii_json_of_version_1_and_comes_back_as_it_was():
    text = ENVELOPE.render()
    assert text.isascii()
    assert json.loads(text)["v"] == 1
    assert Envelope.parse(text) == ENVELOPE
    assert Envelope.parse(Envelope().render()) == Envelope()


def test_a_message_tells_its_envelope():
    attribute = {"stringValue": ENVELOPE.render(), "dataType": "String"}
    message = Message.from_record(record(messageAttributes={"redrive": attribute}))
    assert message.envelope == ENVELOPE


@pytest.mark.parametrize(
    "attribute",
    [
        {"stringValue": "a publisher's own", "dataType": "String"},
        {"binaryValue": "AP8=", "dataType": "Binary"},
        {"stringValue": "7", "dataType": "Number"},
    ],
)
def test_what_is_not_ours_under_our_name_is_carried_and_not_read(attribute):
    message = Message.from_record(record(messageAttributes={"redrive": attribute}))
    assert message.envelope is None
    assert message.attributes["redrive"]["DataType"] == attribute["dataType"]


def changed(**changes):
    return json.dumps(json.loads(ENVELOPE.render()) | changes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "[1]",
        '"v"',
        "7",
        "{}",
        '{"v": 2}',
        '{"v": "1"}',
        '{"v": null}',
        changed(v=2),
        changed(replays="1"),
        changed(replays=-1),
        changed(replays=True),
        changed(replays=1.0),
        changed(replays=None),
        changed(force=-1),
        changed(force=[]),
        changed(id=7),
        changed(queue=["q"]),
        changed(sent_at=1767225600),
        changed(message_id={}),
        changed(expires_at=1767225600),
        changed(expires_at="tomorrow"),
        changed(expires_at="2026-11-30T09:00:00"),
        changed(cause="closed"),
        changed(cause=["closed"]),
        changed(cause={}),
        changed(cause=7),
        changed(cause={"type": "TimeoutError"}),
        changed(cause=json.loads(ENVELOPE.render())["cause"] | {"more": 1}),
        changed(cause=json.loads(ENVELOPE.render())["cause"] | {"type": 7}),
        changed(cause=json.loads(ENVELOPE.render())["cause"] | {"attempts": "12"}),
        changed(cause=json.loads(ENVELOPE.render())["cause"] | {"receives": True}),
        "[" * DEEP,
        '{"v": 1, "n": ' + "9" * 5000 + "}",
        '{"v": 1, "n": NaN}',
    ],
    ids=lambda text: text[:60],
)
def test_what_is_not_valid_version_1_is_never_trusted(text):
    assert Envelope.parse(text) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["v", *Envelope.__dataclass_fields__, *Cause.__dataclass_fields__])


@settings(deadline=None)
@given(st.text() | VALUES.map(json.dumps))
def test_no_text_makes_parse_raise(text):
    parsed = Envelope.parse(text)
    assert parsed is None or isinstance(parsed, Envelope)


@settings(deadline=None)
@given(st.dictionaries(NAMES, VALUES))
def test_nothing_that_parse_lets_through_makes_render_fail(fields):
    text = json.dumps(fields | {"v": 1})
    parsed = Envelope.parse(text)
    if parsed is not None and len(text) < 3900:
        assert Envelope.parse(parsed.render()) == parsed


LINES = st.text(alphabet=string.printable, max_size=60)


@settings(deadline=None)
@given(st.text(max_size=3000), LINES, st.text(max_size=200), st.integers(0, 10**6))
def test_any_cause_fits_and_only_its_message_is_cut(message, kind, key, replays):
    cause = replace(CAUSE, message=message, type=kind)
    envelope = replace(ENVELOPE, id=f"send_email:{key}", replays=replays, cause=cause)
    text = envelope.render()
    assert text.isascii()
    assert len(text) <= limits.ENVELOPE_BYTES
    parsed = Envelope.parse(text)
    assert parsed is not None
    assert parsed.cause is not None
    assert message.startswith(parsed.cause.message)
    assert replace(parsed, cause=replace(parsed.cause, message=message)) == envelope
    if len(json.dumps(message)) - 2 <= 1000 and len(key) < 100:
        assert parsed.cause.message == message


def test_a_message_is_cut_at_one_kilobyte_of_the_attribute():
    for character, size in (("x", 1), ("\n", 2), ("ü", 6), ("🙂", 12)):
        cause = replace(CAUSE, message=character * 2000)
        parsed = Envelope.parse(replace(ENVELOPE, cause=cause).render())
        assert parsed.cause.message == character * (limits.CAUSE_MESSAGE_BYTES // size)


def test_what_cannot_be_cut_and_does_not_fit_is_refused():
    for envelope in (
        replace(ENVELOPE, metadata={"much": "x" * 4096}),
        replace(ENVELOPE, metadata={"much": "x" * 4096}, cause=None),
    ):
        with pytest.raises(ValueError, match="would have"):
            envelope.render()


def test_the_longest_key_leaves_room_for_the_cause():
    long = replace(ENVELOPE, id="send_email:" + "ü" * (limits.KEY_BYTES // 2), metadata={})
    assert Envelope.parse(long.render()) == long


def test_a_publishers_envelope_says_no_more_than_it_means():
    text = Envelope(expires_at="2026-11-30T09:00:00+01:00").render()
    assert json.loads(text) == {
        "v": 1,
        "expires_at": "2026-11-30T09:00:00+01:00",
        "replays": 0,
        "force": 0,
    }


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-29t10:00:00.123z",
        "2026-11-29T10:00:00.123Z",
        "2026-11-29T10:00:00.123+00:00",
        "2026-11-29T19:00:00.123+09:00",
    ],
)
def test_a_time_is_the_same_in_every_zone_and_on_every_machine(monkeypatch, text):
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        assert iso_time(read_time(text)) == "2026-11-29T10:00:00.123Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("name", ["v", "id", "replays", "cause", "expires_at"])
def test_a_publishers_metadata_cannot_stand_in_for_our_own(name):
    envelope = Envelope(id="a", metadata={name: 99})
    parsed = Envelope.parse(envelope.render())
    assert (parsed.id, parsed.replays, parsed.cause) == ("a", 0, None)


@pytest.mark.parametrize("key", ["a#force1", "#force12"])
def test_a_key_that_looks_like_a_forced_run_is_refused(key):
    with pytest.raises(UnusablePayload, match="tells a forced run from others"):
        render_key({"id": key}, "id")


@pytest.mark.parametrize("key", ["a#force", "a#force1b", "force1"])
def test_a_key_that_only_resembles_one_is_not(key):
    assert render_key({"id": key}, "id") == key

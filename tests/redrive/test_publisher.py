"""The publisher against an SQS in memory, which refuses what AWS refuses; nothing sleeps."""

import enum
import itertools
import json
import math
import threading
import time
import tracemalloc
from collections import UserDict
from datetime import UTC, datetime, timedelta
from random import Random

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from botocore.exceptions import ReadTimeoutError as BotoReadTimeout
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from redrive import Publisher, limits
from redrive.errors import (
    InvalidCharacters,
    InvalidMessage,
    MessageTooLarge,
    PublishFailed,
    SettingsError,
    TooManyAttributes,
    UnknownJob,
)
from redrive.message import Message, message_bytes, read_payload, read_time
from redrive.testing import InMemoryQueue, InMemorySqs, aws_error, lambda_event

KIB = 1024
# What a body {"id":"...","pad":"..."} takes beside its padding, with an id of three digits.
FRAME = len('{"id":"000","pad":""}')


class Parameters:
    """SSM's get_parameter over a dictionary; counts its calls."""

    def __init__(self, values):
        self.values, self.asked = values, []

    def get_parameter(self, Name):  # noqa: N803
        self.asked.append(Name)
        if Name not in self.values:
            error = {"Error": {"Code": "ParameterNotFound", "Message": ""}}
            raise ClientError(error, "GetParameter")
        return {"Parameter": {"Value": self.values[Name]}}


def parameter(queue, **changes):
    fields = {
        "version": 1,
        "job": "echo",
        "key": "id",
        "queues": {"normal": queue.url},
        "dead_letter_queue": "unused",
        "fifo": queue.fifo,
        "limits": {"max_message_bytes": queue.max_message_bytes},
    }
    return json.dumps(fields | changes)


class Stage:
    """One job, `echo`, whose key is `id`; its queue, its publisher, and the pauses that it made."""

    def __init__(self, queue, **changes):
        self.queue, self.sqs = queue, InMemorySqs(queue)
        self.ssm = Parameters({"/redrive/test/echo": parameter(queue, **changes)})
        self.pauses = []
        self.publisher = Publisher(
            "test", sqs=self.sqs, ssm=self.ssm, sleep=self.pauses.append, random=Random(1)
        )

    def publish(self, payload, **options):
        return self.publisher.publish("echo", payload, **options)

    def publish_many(self, payloads, **options):
        return self.publisher.publish_many("echo", payloads, **options)

    @property
    def arrived(self):
        """The payloads in the queue, in the order of arrival."""
        return [json.loads(one.body) for one in self.queue.messages]

    @property
    def batches(self):
        """The entries of each SendMessageBatch."""
        return [
            request["Entries"] for name, request in self.sqs.calls if name == "send_message_batch"
        ]


@pytest.fixture
def stage():
    return Stage(InMemoryQueue("echo"))


@pytest.fixture
def fifo():
    return Stage(InMemoryQueue("echo.fifo"))


def numbered(count, start=0):
    return [{"id": f"{number:03}"} for number in range(start, start + count)]


def padded(number, size):
    """A payload whose body has exactly `size` bytes."""
    return {"id": f"{number:03}", "pad": "x" * (size - FRAME)}


class Answers:
    """An SQS client that answers each batch call with the next of these; calls it gets are kept."""

    def __init__(self, *answers):
        self._answers, self.batches = list(answers), []

    def send_message_batch(self, QueueUrl, Entries):  # noqa: N803
        self.batches.append(Entries)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def answered(stage, *answers):
    """The stage's publisher, over prepared answers."""
    client = Answers(*answers)
    stage.publisher._sqs = client
    return client


def successful(*ids):
    return [{"Id": str(one), "MessageId": "m", "MD5OfMessageBody": ""} for one in ids]


def failed(entry_id, *, sender_fault, code="InternalError"):
    return {"Id": str(entry_id), "Code": code, "Message": "why", "SenderFault": sender_fault}


# --- one job --------------------------------------------------------------------------------------


def test_publish_returns_the_id_of_the_job_and_the_body_is_the_payload(stage):
    assert stage.publish({"id": "receipt:ord_1", "to": "ada"}) == "echo:receipt:ord_1"
    assert [one.body for one in stage.queue.messages] == ['{"id":"receipt:ord_1","to":"ada"}']


def test_attributes_and_a_tenant_travel_with_the_message(stage):
    stage.publish(
        {"id": 1},
        attributes={"text": "ü", "whole": 7, "part": 0.5, "raw": b"\x00\xff"},
        group_id="tenant-7",
    )
    (message,) = stage.queue.messages
    assert message.group_id == "tenant-7"
    assert message.attributes == {
        "text": {"DataType": "String", "StringValue": "ü"},
        "whole": {"DataType": "Number", "StringValue": "7"},
        "part": {"DataType": "Number", "StringValue": "0.5"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }


def test_a_payload_may_be_any_mapping(stage):
    assert stage.publish(UserDict(id=1)) == "echo:1"


def test_an_unconfirmed_publish_may_be_repeated_it_is_the_same_job(stage):
    stage.sqs.fail_next("send_message", BotoReadTimeout(endpoint_url="sqs"), answer_lost=True)
    with pytest.raises(PublishFailed) as caught:
        stage.publish({"id": "a"})
    assert caught.value.unsent[0].code == "ReadTimeoutError"
    assert isinstance(caught.value.__cause__, BotoReadTimeout)
    job_id = stage.publish(*caught.value.payloads())
    assert (job_id, stage.arrived) == ("echo:a", [{"id": "a"}, {"id": "a"}])


def test_boto3_itself_takes_what_the_publisher_sends(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("REDRIVE_STAGE", "test")
    with mock_aws():
        sqs, ssm = boto3.client("sqs"), boto3.client("ssm")
        queue = InMemoryQueue("echo")
        queue.url = sqs.create_queue(QueueName="echo")["QueueUrl"]
        ssm.put_parameter(Name="/redrive/test/echo", Value=parameter(queue), Type="String")
        publisher = Publisher()
        assert publisher.publish("echo", {"id": 1}, attributes={"raw": b"\x00"}) == "echo:1"
        assert publisher.publish_many("echo", numbered(11)) == 11
        counts = sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["All"])
        assert counts["Attributes"]["ApproximateNumberOfMessages"] == "12"
        with pytest.raises(UnknownJob):
            publisher.publish("no such name", {"id": 1})


# --- discovery ------------------------------------------------------------------------------------


def test_what_the_stack_says_of_a_job_is_read_once(stage):
    for number in range(3):
        stage.publish({"id": number})
    stage.publish_many(numbered(3))
    assert stage.ssm.asked == ["/redrive/test/echo"]


def test_nothing_is_read_or_connected_before_the_first_job(monkeypatch):
    monkeypatch.delenv("REDRIVE_STAGE", raising=False)
    monkeypatch.setattr(boto3, "client", lambda *_, **__: pytest.fail("connected"))
    publisher = Publisher()
    with pytest.raises(SettingsError, match="REDRIVE_STAGE"):
        publisher.publish("echo", {"id": 1})


def test_an_unknown_job_names_the_stage_and_the_way_out(stage):
    with pytest.raises(UnknownJob, match=r"stage 'test'.*'gone'.*/redrive/test/gone.*deployed"):
        stage.publisher.publish("gone", {"id": 1})
    with pytest.raises(UnknownJob):
        stage.publisher.publish_many("gone", (pytest.fail("read") for _ in range(1)))


def test_a_refused_discovery_is_not_an_unknown_job(stage):
    def refuse(Name):  # noqa: N803
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetParameter")

    stage.ssm.get_parameter = refuse
    with pytest.raises(ClientError, match="AccessDenied"):
        stage.publish({"id": 1})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not JSON", "/redrive/test/echo is of no use"),
        ("[]", "no JSON object of the form"),
        ("{}", "no 'version'"),
        ('{"version": 2}', "version 2, this library reads version 1: install"),
        ('{"version": 1, "key": "id"}', "no 'queues'"),
        ('{"version": 1, "key": "a..b"}', "a..b"),
        ('{"version": 1, "key": "id", "queues": null}', "no JSON object of the form"),
    ],
)
def test_an_unreadable_parameter_says_what_is_wrong_with_it(stage, text, reason):
    stage.ssm.values["/redrive/test/echo"] = text
    with pytest.raises(SettingsError, match=reason):
        stage.publish({"id": 1})


def test_what_a_later_stack_adds_to_version_1_is_no_hindrance():
    assert Stage(InMemoryQueue("echo"), tracked=True).publish({"id": 1}) == "echo:1"


@pytest.mark.parametrize("operation", ["publish", "publish_many"])
def test_a_queue_that_is_gone_is_looked_up_again_the_next_time(stage, operation):
    stage.publish({"id": 1})
    replacement = InMemoryQueue("echo-2")
    stage.sqs = stage.publisher._sqs = InMemorySqs(replacement)
    stage.ssm.values["/redrive/test/echo"] = parameter(replacement)
    with pytest.raises(PublishFailed, match="NonExistentQueue"):
        getattr(stage, operation)(numbered(1)[0] if operation == "publish" else numbered(1))
    stage.publish({"id": 2})
    assert len(replacement) == 1


def test_threads_may_share_a_publisher(stage):
    threads = [
        threading.Thread(target=stage.publish_many, args=[numbered(25, start=25 * number)])
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one["id"] for one in stage.arrived}) == 200
    assert stage.ssm.asked == ["/redrive/test/echo"]


# --- what is refused before any call --------------------------------------------------------------

SURROGATE = "\ud83d"
LATIN = "é" * 600  # 600 characters, 1,200 bytes

REFUSED = [
    # the payload
    ("an empty text", {"payload": ""}, InvalidMessage, "not str"),
    ("a blank text", {"payload": " "}, InvalidMessage, "not str"),
    ("a list", {"payload": [1]}, InvalidMessage, "not list"),
    ("nothing", {"payload": None}, InvalidMessage, "not NoneType"),
    ("not a number", {"payload": {"id": 1, "n": math.nan}}, InvalidMessage, "not JSON"),
    ("infinity", {"payload": {"id": 1, "n": [math.inf]}}, InvalidMessage, "not JSON"),
    ("a time", {"payload": {"id": datetime.now(UTC)}}, InvalidMessage, "datetime"),
    ("an integer too long", {"payload": {"id": 1, "n": 10**5000}}, InvalidMessage, "not JSON"),
    ("a name twice", {"payload": {"id": 1, 7: "a", "7": "b"}}, InvalidMessage, "stands twice"),
    ("a test message", {"payload": {"id": 1, "Event": "s3:TestEvent"}}, InvalidMessage, "test"),
    # the key
    ("no key", {"payload": {"ID": 1}}, InvalidMessage, "no value at `id`"),
    ("an empty key", {"payload": {"id": ""}}, InvalidMessage, "no value at `id`"),
    ("a key that is null", {"payload": {"id": None}}, InvalidMessage, "no value at `id`"),
    ("a key that is a list", {"payload": {"id": [1]}}, InvalidMessage, "at `id`"),
    ("a key that is a fraction", {"payload": {"id": 1.5}}, InvalidMessage, "at `id`"),
    ("a key too long", {"payload": {"id": "k" * 513}}, InvalidMessage, "at most 512"),
    ("half a pair as key", {"payload": {"id": SURROGATE}}, InvalidMessage, "valid Unicode"),
    # attributes
    ("eight attributes", {"attributes": dict.fromkeys("abcdefgh", 1)}, TooManyAttributes, "8"),
    ("an empty value", {"attributes": {"a": ""}}, InvalidMessage, "'a' is empty"),
    ("empty bytes", {"attributes": {"a": b""}}, InvalidMessage, "'a' is empty"),
    ("a control character", {"attributes": {"a": "\x0b"}}, InvalidCharacters, "'a' holds"),
    ("half a pair", {"attributes": {"a": SURROGATE}}, InvalidCharacters, "'a' holds"),
    ("a non-character", {"attributes": {"a": "x\uffff"}}, InvalidCharacters, "'a' holds"),
    ("true", {"attributes": {"a": True}}, InvalidMessage, "bool"),
    ("null", {"attributes": {"a": None}}, InvalidMessage, "NoneType"),
    ("no number", {"attributes": {"a": math.nan}}, InvalidMessage, "number"),
    ("an endless number", {"attributes": {"a": -math.inf}}, InvalidMessage, "number"),
    ("a huge number", {"attributes": {"a": 10**400}}, InvalidMessage, "number"),
    ("39 digits", {"attributes": {"a": int("1" * 39)}}, InvalidMessage, "38 digits"),
    ("Redrive's name", {"attributes": {"redrive": "x"}}, InvalidMessage, "Redrive's own"),
    ("AWS's name", {"attributes": {"AWS.x": "x"}}, InvalidMessage, "reserved for AWS"),
    ("Amazon's name", {"attributes": {"amazon.x": "x"}}, InvalidMessage, "reserved for AWS"),
    ("no name", {"attributes": {"": "x"}}, InvalidMessage, "letters, digits"),
    ("a number as name", {"attributes": {7: "x"}}, InvalidMessage, "letters, digits"),
    ("a blank in a name", {"attributes": {"a b": "x"}}, InvalidMessage, "letters, digits"),
    ("a dot before", {"attributes": {".a": "x"}}, InvalidMessage, "letters, digits"),
    ("a dot behind", {"attributes": {"a.": "x"}}, InvalidMessage, "letters, digits"),
    ("two dots", {"attributes": {"a..b": "x"}}, InvalidMessage, "letters, digits"),
    ("a line's end in a name", {"attributes": {"a\n": "x"}}, InvalidMessage, "letters, digits"),
    ("a name too long", {"attributes": {"n" * 257: "x"}}, InvalidMessage, "letters, digits"),
    # order
    ("deduplication", {"deduplication_id": "d"}, InvalidMessage, "not FIFO"),
    ("an empty group", {"group_id": ""}, InvalidMessage, "1 to 128"),
    ("a group too long", {"group_id": "g" * 129}, InvalidMessage, "1 to 128"),
    ("a number as group", {"group_id": 7}, InvalidMessage, "1 to 128"),
    ("a blank in a group", {"group_id": "a b"}, InvalidCharacters, "ASCII"),
    ("an umlaut in a group", {"group_id": "ä"}, InvalidCharacters, "ASCII"),
    # size, in bytes and not in characters
    ("too large", {"payload": {"id": 1, "x": LATIN}}, MessageTooLarge, "1215 bytes.*1200"),
]


@pytest.mark.parametrize(
    ("options", "error", "reason"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED]
)
def test_what_sqs_or_a_worker_would_refuse_is_refused_before_any_call(options, error, reason):
    stage = Stage(InMemoryQueue("echo", max_message_bytes=1200))
    payload = {"id": 1}
    with pytest.raises(error, match=reason):
        stage.publish(**{"payload": payload} | options)
    assert stage.sqs.calls == []


@pytest.mark.parametrize(
    ("options", "error", "reason"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED]
)
def test_and_in_the_midst_of_many_it_fails_alone(options, error, reason):
    stage = Stage(InMemoryQueue("echo", max_message_bytes=1200))
    bad = options.get("payload", {"id": "bad"})

    def for_the_bad_one(name):
        return lambda payload: options.get(name) if payload == bad else None

    names = ("attributes", "group_id", "deduplication_id")
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(
            [*numbered(3), bad, *numbered(8, start=3)],
            **{name: for_the_bad_one(name) for name in names},
        )
    assert stage.arrived == numbered(11)
    (unsent,) = caught.value.unsent
    assert (unsent.index, unsent.payload, unsent.code) == (3, bad, error.__name__)
    assert caught.value.sent == 11


def test_a_message_that_is_refused_is_a_value_error(stage):
    with pytest.raises(ValueError, match="no value"):
        stage.publish({})


def test_the_error_holds_the_bad_payload_also_where_it_cannot_be_compared(stage):
    class Unfriendly(dict):
        __hash__ = None

        def __eq__(self, other):
            raise AssertionError

    with pytest.raises(PublishFailed) as caught:
        stage.publish_many([Unfriendly(), *numbered(2)])
    assert (caught.value.sent, caught.value.unsent[0].index) == (2, 0)


@pytest.mark.parametrize("number", [0, -1, 10**126, 1e126, 1e-128, 0.1, -0.0, int("1" * 38)])
def test_numbers_within_what_sqs_takes_keep_their_value(stage, number):
    stage.publish({"id": 1}, attributes={"number": number})
    told = stage.queue.messages[0].attributes["number"]
    assert told["DataType"] == "Number"
    assert type(number)(told["StringValue"]) == number


def test_a_publisher_has_seven_attributes_of_its_own(stage):
    stage.publish({"id": 1}, attributes=dict.fromkeys("abcdefg", "x"))
    assert len(stage.queue.messages[0].attributes) == 7


@pytest.mark.parametrize("room", [-1, 0, 1])
def test_a_size_counts_name_type_and_value_of_each_attribute(room):
    attributes = {"trace": "ü", "raw": b"12345"}
    counted = len("trace") + len("String") + 2 + len("raw") + len("Binary") + 5
    stage = Stage(InMemoryQueue("echo", max_message_bytes=5000))
    payload = padded(1, 5000 - counted - room)
    if room < 0:
        with pytest.raises(MessageTooLarge, match=r"5001 bytes.*5000"):
            stage.publish(payload, attributes=attributes)
        assert stage.sqs.calls == []
    else:
        stage.publish(payload, attributes=attributes)
        assert len(stage.queue) == 1


@pytest.mark.parametrize("limit", [limits.MESSAGE_BYTES, 256 * KIB])
def test_the_limit_is_the_queues_own(limit):
    stage = Stage(InMemoryQueue("echo", max_message_bytes=limit))
    if limit < 300 * KIB:
        with pytest.raises(MessageTooLarge):
            stage.publish(padded(1, 300 * KIB))
    else:
        stage.publish(padded(1, 900 * KIB))
    assert stage.publish_many([padded(2, 200 * KIB), padded(3, 200 * KIB)]) == 2
    assert len(stage.batches) == (1 if limit == limits.MESSAGE_BYTES else 2)


# --- the key and the body, as the worker will read them -------------------------------------------


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Loud(str):
    __slots__ = ()

    def __str__(self):
        return self.upper()


@pytest.mark.parametrize(
    ("key", "rendered"),
    [
        ("a/b:1", "a/b:1"),
        ("k" * 100, "k" * 100),
        ("🙂", "🙂"),
        (7, "7"),
        ("7", "7"),
        (0, "0"),
        (False, "false"),
        (True, "true"),
        (Colour.RED, "red"),
        (Size.SMALL, "1"),
        (Loud("quiet"), "quiet"),
    ],
)
def test_the_id_is_the_one_that_the_worker_will_find(stage, key, rendered):
    assert stage.publish({"id": key}) == f"echo:{rendered}"


def test_a_payload_of_sns_has_the_id_of_the_job_within(stage):
    notification = {"Type": "Notification", "TopicArn": "arn:aws:sns:::t", "Message": '{"id":7}'}
    assert stage.publish(notification) == "echo:7"


@pytest.mark.parametrize("text", ["\x00", "\x0b", "\x1f", "\ufffe", "\uffff", SURROGATE, "\udc00x"])
def test_characters_that_sqs_does_not_carry_arrive_as_escapes(stage, text):
    payload = {"id": 1, "text": f"ü{text}", text: "in a name"}
    stage.publish(payload)
    (message,) = stage.queue.messages
    assert "\\u" in message.body
    assert json.loads(message.body) == payload


@pytest.mark.parametrize("text", ["\ufffe", "\uffff", SURROGATE])
def test_one_of_them_turns_the_whole_body_into_ascii(stage, text):
    stage.publish({"id": 1, "text": f"ü{text}"})
    assert stage.queue.messages[0].body.isascii()


@pytest.mark.parametrize("text", ["\t\n\r", "\x7f\x85", "\ud7ff\ue000\ufffd", "ü🙂\U0010ffff"])
def test_characters_that_sqs_carries_stay_readable(stage, text):
    stage.publish({"id": 1, "text": text})
    (message,) = stage.queue.messages
    assert message.body.isascii() == text.isascii()
    assert json.loads(message.body)["text"] == text


# Two halves that stand side by side are one character to every reader of JSON.
UNPAIRED = st.text(st.characters(exclude_categories=[])).filter(
    lambda text: text == json.loads(json.dumps(text))
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | UNPAIRED,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(UNPAIRED, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(JSON)
def test_every_payload_arrives_equal(value):
    stage = Stage(InMemoryQueue("echo"))
    stage.publish({"id": 1, "value": value})
    (record,) = lambda_event(stage.queue.receive(), stage.queue)["Records"]
    assert read_payload(Message.from_record(record).body) == {"id": 1, "value": value}


# --- FIFO -----------------------------------------------------------------------------------------


def test_a_fifo_queue_asks_for_a_group(fifo):
    with pytest.raises(InvalidMessage, match="FIFO: give a group_id"):
        fifo.publish({"id": 1})
    assert fifo.sqs.calls == []


def test_a_job_that_is_published_again_on_a_fifo_queue_is_not_swallowed(fifo):
    for _ in range(2):
        fifo.publish({"id": 1}, group_id="a")
    fifo.publish_many([{"id": 1}], group_id="a")
    assert len(fifo.queue) == 3


def test_the_repeats_of_one_send_are_swallowed_on_a_fifo_queue(fifo):
    fifo.sqs.fail_next("send_message_batch", EndpointConnectionError(endpoint_url="sqs"))
    fifo.sqs.fail_next("send_message_batch", BotoReadTimeout(endpoint_url="sqs"), answer_lost=True)
    assert fifo.publish_many(numbered(3), group_id="a") == 3
    assert fifo.arrived == numbered(3)


def test_a_callers_own_deduplication_id_is_kept(fifo):
    for _ in range(2):
        fifo.publish({"id": 1}, group_id="a", deduplication_id="d-1")
    fifo.publish_many(
        [{"id": 1}, {"id": 2}],
        group_id=lambda payload: f"g{payload['id']}",
        deduplication_id=lambda payload: f"d-{payload['id']}",
    )
    assert [(one["id"]) for one in fifo.arrived] == [1, 2]
    assert fifo.queue.messages[1].system["MessageDeduplicationId"] == "d-2"


# --- expiry ---------------------------------------------------------------------------------------


def expiries(stage):
    received = stage.queue.receive(10)
    messages = [Message.from_record(one) for one in lambda_event(received, stage.queue)["Records"]]
    return [one.envelope and read_time(one.envelope.expires_at) for one in messages]


def test_a_message_says_until_when_its_publisher_wants_it(stage):
    before = int(time.time() * 1000)
    stage.publish({"id": 1}, expires_in=timedelta(minutes=5))
    (expires_at,) = expiries(stage)
    assert before <= expires_at - 300_000 <= time.time() * 1000


def test_each_message_of_many_may_have_its_own_expiry(stage):
    stage.publish_many([{"id": 1}], expires_in=timedelta(hours=1))
    stage.publish_many(
        [{"id": 2}, {"id": 3}],
        expires_in=lambda payload: timedelta(minutes=1) if payload["id"] == 2 else None,
    )
    hour, minute, never = expiries(stage)
    assert 3_500_000 < hour - minute < 3_600_000
    assert never is None


def test_the_expiry_is_counted_in_a_messages_size(stage):
    room = stage.queue.max_message_bytes - len('{"id":1,"pad":""}')
    stage.publish({"id": 1, "pad": "x" * room})
    with pytest.raises(MessageTooLarge):
        stage.publish({"id": 1, "pad": "x" * room}, expires_in=timedelta(hours=1))


@pytest.mark.parametrize(
    "wrong", [timedelta(0), timedelta(seconds=-1), 300, "5 minutes", timedelta.max]
)
def test_an_expiry_that_means_nothing_is_refused(stage, wrong):
    with pytest.raises(InvalidMessage, match="expires_in"):
        stage.publish({"id": 1}, expires_in=wrong)
    assert stage.arrived == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [("", InvalidMessage), ("d" * 129, InvalidMessage), ("a b", InvalidCharacters)],
)
def test_a_deduplication_id_follows_the_rules_of_sqs(fifo, wrong, error):
    with pytest.raises(error, match="deduplication_id"):
        fifo.publish({"id": 1}, group_id="a", deduplication_id=wrong)


# --- many -----------------------------------------------------------------------------------------


def test_many_go_ten_to_a_call_in_order(stage):
    assert stage.publish_many(iter(numbered(25))) == 25
    assert [len(entries) for entries in stage.batches] == [10, 10, 5]
    assert stage.arrived == numbered(25)


def test_of_nothing_nothing_is_sent(stage):
    assert stage.publish_many([]) == 0
    assert stage.sqs.calls == []


def test_the_messages_of_a_call_are_within_the_limit_together(stage):
    sizes = [600, 600, 10, 1000, 30, 1024, 1, 1]
    payloads = [padded(number, size * KIB) for number, size in enumerate(sizes)]
    assert stage.publish_many(payloads) == 8
    assert stage.arrived == payloads
    assert [len(entries) for entries in stage.batches] == [1, 2, 1, 1, 1, 2]


def test_messages_that_are_exactly_at_the_limit_together_go_in_one_call(stage):
    assert stage.publish_many([padded(1, 600 * KIB), padded(2, 424 * KIB), padded(3, 400)]) == 3
    assert [len(entries) for entries in stage.batches] == [2, 1]


@settings(deadline=None)
@given(st.lists(st.integers(FRAME, 1000), max_size=40))
def test_calls_are_never_over_a_limit_and_no_fuller_call_was_possible(sizes):
    stage = Stage(InMemoryQueue("echo", max_message_bytes=1000))
    payloads = [padded(number, size) for number, size in enumerate(sizes)]
    assert stage.publish_many(payloads) == len(payloads)
    assert stage.arrived == payloads
    totals = [
        (len(entries), sum(message_bytes(one["MessageBody"], {}) for one in entries))
        for entries in stage.batches
    ]
    assert all(count <= 10 and size <= 1000 for count, size in totals)
    firsts = [message_bytes(entries[0]["MessageBody"], {}) for entries in stage.batches]
    for (count, size), first in itertools.pairwise(zip(totals, firsts, strict=True)):
        assert count[0] == 10 or count[1] + first[1] > 1000, (size, first)


def test_ids_of_entries_are_places_whatever_the_ids_of_the_jobs(stage):
    ids = ["a/b:1", "k" * 100, "🙂", "same", "same"]
    assert stage.publish_many({"id": one} for one in ids) == 5
    assert [one["Id"] for one in stage.batches[0]] == ["0", "1", "2", "3", "4"]
    assert [one["id"] for one in stage.arrived] == ids


def test_each_entry_ends_as_sent_or_as_failed_with_its_reason(stage):
    client = answered(
        stage,
        {
            "Successful": successful(0, 1, 2, 3, 4, 5),
            "Failed": [
                failed(6, sender_fault=False),
                failed(7, sender_fault=False, code="RequestThrottled"),
                failed(8, sender_fault=True, code="InvalidMessageContents"),
            ],
        },
        {"Successful": successful(0, 1)},
    )
    payloads = numbered(10)
    with pytest.raises(PublishFailed, match="2 not published, 8 published") as caught:
        stage.publish_many(payloads)
    assert [len(entries) for entries in client.batches] == [10, 2]
    bodies = [json.loads(entry["MessageBody"]) for entry in client.batches[1]]
    assert bodies == payloads[6:8]
    assert caught.value.sent == 8
    refused, silent = caught.value.unsent
    assert (refused.index, refused.code, refused.reason) == (8, "InvalidMessageContents", "why")
    assert (silent.index, silent.code) == (9, "NotConfirmed")
    assert list(caught.value.payloads()) == payloads[8:]


def test_confirmations_of_what_was_not_sent_do_not_count(stage):
    answered(stage, {"Successful": successful(0, 1, 7, "x")})
    assert stage.publish_many(numbered(2)) == 2


def test_an_entry_in_both_lists_is_sent_again(stage):
    answered(
        stage,
        {"Successful": successful(0), "Failed": [failed(0, sender_fault=False)]},
        {"Successful": successful(0)},
    )
    assert stage.publish_many(numbered(1)) == 1


def test_the_entries_of_a_repeat_keep_their_messages(fifo):
    fifo.sqs.fail_next("send_message_batch", aws_error("InternalError", status=500), entries={1})
    assert fifo.publish_many(numbered(3), group_id="a", attributes={"a": 1}) == 3
    first, second = fifo.batches
    assert second == [first[1] | {"Id": "0"}]


def test_what_stays_refused_is_given_up_after_six_tries_with_growing_random_pauses(stage):
    error = aws_error("InternalError", "try again", status=500)
    stage.sqs.fail_next("send_message_batch", error, entries={0}, times=99)
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(numbered(3))
    assert stage.arrived == numbered(2, start=1)
    assert (caught.value.unsent[0].index, caught.value.unsent[0].code) == (0, "InternalError")
    assert [len(entries) for entries in stage.batches] == [3, 1, 1, 1, 1, 1]
    ceilings = [0.1, 0.2, 0.4, 0.8, 1.6]
    assert len(stage.pauses) == 5
    assert all(0 <= pause <= most for pause, most in zip(stage.pauses, ceilings, strict=True))
    assert stage.pauses != sorted(ceilings)


def test_full_jitter_uses_the_whole_range():
    pauses = []
    for seed in range(300):
        stage = Stage(InMemoryQueue("echo"))
        stage.publisher._random = Random(seed)
        stage.sqs.fail_next("send_message_batch", "RequestThrottled")
        stage.publish_many(numbered(1))
        pauses += stage.pauses
    assert min(pauses) < 0.005
    assert max(pauses) > 0.095


@pytest.mark.parametrize(
    "error",
    [
        aws_error("InternalError", status=500),
        aws_error("ServiceUnavailable", status=503),
        aws_error("RequestThrottled"),
        aws_error("ThrottlingException"),
        aws_error("KmsThrottled"),
        EndpointConnectionError(endpoint_url="sqs"),
        BotoReadTimeout(endpoint_url="sqs"),
    ],
    ids=lambda error: f"{type(error).__name__} {error}"[:60],
)
def test_a_call_that_fails_for_a_passing_reason_is_repeated(stage, error):
    stage.sqs.fail_next("send_message_batch", error, times=5)
    assert stage.publish_many(numbered(12)) == 12
    assert stage.arrived == numbered(12)
    assert len(stage.pauses) == 5


def test_a_reason_that_does_not_pass_stops_and_leaves_the_rest_untouched(stage):
    stage.sqs.fail_next("send_message_batch", aws_error("ServiceUnavailable", status=503), times=6)
    source = iter(numbered(35))
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(source)
    assert [one.index for one in caught.value.unsent] == list(range(10))
    assert next(source) == {"id": "010"}
    assert list(caught.value.remaining) == numbered(24, start=11)


FATAL = [
    aws_error("AccessDenied", status=403),
    aws_error("AccessDeniedException", status=400),
    aws_error("InvalidClientTokenId", status=403),
    aws_error("ExpiredToken", status=403),
    aws_error("KmsAccessDenied"),
    aws_error("QueueDoesNotExist"),
    ClientError({"Error": {"Code": "QueueDoesNotExist", "Message": ""}}, "SendMessageBatch"),
    ClientError({"Error": {}}, "SendMessageBatch"),
    NoCredentialsError(),
    RuntimeError("a bug of somebody's"),
]


@pytest.mark.parametrize("error", FATAL, ids=lambda error: f"{type(error).__name__} {error}"[:80])
def test_a_failure_that_would_meet_every_message_stops_at_once(stage, error):
    stage.publish_many(numbered(10))
    stage.sqs.fail_next("send_message_batch", error, times=99)
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(iter(numbered(1000, start=10)))
    failure = caught.value
    assert (failure.sent, len(failure.unsent), len(stage.batches)) == (0, 10, 2)
    assert failure.__cause__ is error
    assert list(failure.payloads()) == numbered(1000, start=10)


def test_a_message_that_no_longer_fitted_is_in_the_rest_exactly_once(stage):
    large, small = [padded(n, 600 * KIB) for n in range(3)], numbered(3, start=3)
    stage.sqs.fail_next("send_message_batch", "AccessDenied")
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(iter([*large, *small]))
    assert len(caught.value.unsent) == 1
    assert list(caught.value.payloads()) == [*large, *small]


def test_what_was_left_over_can_be_published_again(stage):
    stage.sqs.fail_next("send_message_batch", "AccessDenied")
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(iter(numbered(100)))
    assert stage.publish_many(caught.value.payloads()) == 100
    assert stage.arrived == numbered(100)


def test_one_message_that_fails_its_whole_call_does_not_hinder_the_others(stage):
    def refuse_005(**request):
        entries = request["Entries"]
        if any("005" in entry["MessageBody"] for entry in entries):
            raise aws_error("InvalidMessageContents", "a rule we do not know")
        return send(**request)

    send, stage.sqs.send_message_batch = stage.sqs.send_message_batch, refuse_005
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(numbered(20))
    assert [one.index for one in caught.value.unsent] == [5]
    assert stage.arrived == [one for one in numbered(20) if one["id"] != "005"]


def test_nothing_is_lost_when_permission_goes_while_messages_go_one_by_one(stage):
    stage.sqs.fail_next("send_message_batch", "BatchRequestTooLong")
    answers = itertools.chain([None] * 4, itertools.repeat(aws_error("AccessDenied")))

    def send_or_refuse(**request):
        error = next(answers)
        if error:
            raise error
        return send(**request)

    send, stage.sqs.send_message_batch = stage.sqs.send_message_batch, send_or_refuse
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(iter(numbered(30)))
    assert caught.value.sent == 3
    assert [one.index for one in caught.value.unsent] == [3]
    assert stage.arrived == numbered(3)
    assert list(caught.value.payloads()) == numbered(27, start=3)


def test_the_unsent_are_told_in_the_order_of_the_input(stage):
    stage.sqs.fail_next("send_message_batch", "InvalidParameterValue", entries={0, 1})
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many([{"id": "a"}, {}, {"id": "b"}, []])
    assert [one.index for one in caught.value.unsent] == [0, 1, 2, 3]


# --- an input that breaks off ---------------------------------------------------------------------


def breaking_after(payloads, error):
    yield from payloads
    raise error


def test_when_the_input_raises_what_was_read_is_sent_and_its_error_goes_on(stage):
    error = LookupError("the cursor is gone")
    with pytest.raises(LookupError) as caught:
        stage.publish_many(breaking_after(numbered(13), error))
    assert caught.value is error
    assert error.__notes__ == ["publish_many: 13 messages were published before this"]
    assert stage.arrived == numbered(13)


def test_when_the_input_raises_and_something_is_left_over_both_are_told(stage):
    error = aws_error("AccessDenied")  # of the caller's own table, not of our queue
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(breaking_after([*numbered(12), {}], error))
    assert caught.value.__cause__ is error
    assert (caught.value.sent, caught.value.unsent[0].index) == (12, 12)
    assert stage.arrived == numbered(12)


def test_an_error_of_the_rest_is_not_hidden(stage):
    stage.sqs.fail_next("send_message_batch", "AccessDenied")
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(breaking_after(numbered(12), LookupError()))
    with pytest.raises(LookupError):
        list(caught.value.remaining)


def test_a_function_of_the_payload_that_raises_fails_its_payload_alone(stage):
    payloads = [{"id": 1, "tenant": "a"}, {"id": 2}, {"id": 3, "tenant": "b"}]
    with pytest.raises(PublishFailed) as caught:
        stage.publish_many(payloads, group_id=lambda payload: payload["tenant"])
    assert (caught.value.unsent[0].index, caught.value.unsent[0].code) == (1, "KeyError")
    assert stage.arrived == [payloads[0], payloads[2]]


def test_what_is_not_iterable_is_a_mistake_of_the_caller(stage):
    with pytest.raises(TypeError):
        stage.publish_many(7)


def test_a_generator_is_read_no_further_than_it_is_sent(stage):
    read = []

    def source():
        for one in numbered(30):
            read.append(one)
            assert len(read) - len(stage.queue) <= 10
            yield one

    assert stage.publish_many(source()) == 30


def test_many_take_no_memory():
    stage = Stage(InMemoryQueue("echo"))

    class Swallow:
        def send_message_batch(self, QueueUrl, Entries):  # noqa: N803
            return {"Successful": successful(*range(len(Entries)))}

    stage.publisher._sqs = Swallow()

    def peak(number):
        tracemalloc.start()
        assert stage.publish_many({"id": n} for n in range(number)) == number
        peaked = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peaked

    peak(100)
    kept = 5_000 * 240  # what the payloads alone would take
    assert peak(5_000) < kept / 4


def test_a_publisher_sleeps_by_the_clock_unless_told_otherwise():
    assert Publisher("test")._sleep is time.sleep

"""The test doubles keep AWS's rules, those too that emulators leave out."""

import base64
import json
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from redrive import limits
from redrive.errors import NotAnSqsEvent
from redrive.message import Message
from redrive.testing import (
    Delivery,
    InMemoryQueue,
    InMemorySqs,
    ManualClock,
    aws_error,
    deliver,
    lambda_context,
    lambda_event,
)
from redrive.worker.worker import read_event

TWELVE_HOURS = 43_200


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def dead(clock):
    return InMemoryQueue("echo-dead", clock=clock)


@pytest.fixture
def queue(clock, dead):
    return InMemoryQueue("echo", clock=clock, dead_letter_queue=dead, max_receive_count=2)


@pytest.fixture
def fifo(clock):
    return InMemoryQueue("echo.fifo", clock=clock)


@pytest.fixture
def sqs(queue, dead, fifo):
    return InMemorySqs(queue, dead, fifo)


def send(queue, *bodies, **fields):
    for body in bodies:
        queue.send({"MessageBody": body, **fields})


def send_fifo(queue, *bodies):
    """Each body's first letter is its group."""
    for body in bodies:
        send(queue, body, MessageGroupId=body[0], MessageDeduplicationId=body)


def bodies(messages):
    return [message["Body"] for message in messages]


def left(queue):
    return [message.body for message in queue.messages]


def seconds(number):
    return timedelta(seconds=number)


def code_of(caught):
    return caught.value.response["Error"]["QueryErrorCode"]


# --- visibility and receive counts ----------------------------------------------------------------


def test_a_received_message_is_hidden_until_its_visibility_timeout_ends(queue, clock):
    send(queue, "a")
    assert bodies(queue.receive()) == ["a"]
    clock.advance(seconds(29.9))
    assert queue.receive() == []
    clock.advance(seconds(0.1))
    (again,) = queue.receive()
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_each_receive_has_a_handle_of_its_own_and_keeps_the_first_times(queue, clock):
    send(queue, "a")
    (first,) = queue.receive(visibility_seconds=0)
    clock.advance(seconds(5))
    (second,) = queue.receive()
    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):
        assert first["Attributes"][name] == second["Attributes"][name]


def test_a_delayed_message_is_not_there_yet(queue, clock):
    send(queue, "later", DelaySeconds=900)
    assert queue.receive() == []
    assert queue.attributes["ApproximateNumberOfMessagesDelayed"] == "1"
    clock.advance(seconds(900))
    assert bodies(queue.receive()) == ["later"]


def test_visibility_is_changed_from_now(queue, clock):
    send(queue, "a")
    (message,) = queue.receive()
    clock.advance(seconds(20))
    queue.change_visibility(message["ReceiptHandle"], 100)
    clock.advance(seconds(99))
    assert queue.receive() == []
    clock.advance(seconds(1))
    assert len(queue.receive()) == 1


def test_a_message_can_be_hidden_for_twelve_hours_since_its_receive_and_no_longer(queue, clock):
    send(queue, "a")
    (message,) = queue.receive()
    queue.change_visibility(message["ReceiptHandle"], TWELVE_HOURS)
    clock.advance(seconds(10))
    queue.change_visibility(message["ReceiptHandle"], TWELVE_HOURS - 10)
    with pytest.raises(ClientError, match="beyond the limit"):
        queue.change_visibility(message["ReceiptHandle"], TWELVE_HOURS - 9)


@pytest.mark.parametrize("out_of_range", [-1, TWELVE_HOURS + 1])
def test_a_visibility_timeout_out_of_range_is_refused(queue, out_of_range):
    send(queue, "a")
    (message,) = queue.receive()
    with pytest.raises(ClientError, match="VisibilityTimeout is invalid"):
        queue.change_visibility(message["ReceiptHandle"], out_of_range)


def test_visibility_needs_a_message_in_flight_and_its_newest_handle(queue, clock):
    send(queue, "a")
    (old,) = queue.receive(visibility_seconds=10)
    clock.advance(seconds(10))
    with pytest.raises(ClientError) as caught:
        queue.change_visibility(old["ReceiptHandle"], 5)
    assert code_of(caught) == "MessageNotInflight"
    (new,) = queue.receive()
    for handle, code in (
        (old["ReceiptHandle"], "InvalidParameterValue"),
        ("of another queue", "ReceiptHandleIsInvalid"),
    ):
        with pytest.raises(ClientError) as caught:
            queue.change_visibility(handle, 5)
        assert code_of(caught) == code
    queue.change_visibility(new["ReceiptHandle"], 5)


def test_an_old_handle_deletes_nothing_and_says_nothing(queue, clock):
    send(queue, "a")
    (old,) = queue.receive()
    clock.advance(seconds(30))
    (new,) = queue.receive()
    queue.delete(old["ReceiptHandle"])
    assert left(queue) == ["a"]
    queue.delete(new["ReceiptHandle"])
    queue.delete(new["ReceiptHandle"])
    assert left(queue) == []


def test_a_standard_queue_deletes_after_the_timeout_and_a_fifo_queue_refuses(queue, fifo, clock):
    send(queue, "a")
    send_fifo(fifo, "a")
    (standard,), (ordered,) = queue.receive(), fifo.receive()
    clock.advance(seconds(30))
    queue.delete(standard["ReceiptHandle"])
    assert len(queue) == 0
    with pytest.raises(ClientError, match="expired"):
        fifo.delete(ordered["ReceiptHandle"])


def test_a_message_past_its_receives_moves_only_on_the_next_receive(queue, dead, clock):
    send(queue, "a", MessageAttributes={"n": {"DataType": "Number", "StringValue": "7"}})
    for _ in range(2):
        (message,) = queue.receive()
        clock.advance(seconds(60))
    assert (len(queue), len(dead)) == (1, 0)
    assert queue.receive() == []
    assert (len(queue), len(dead)) == (0, 1)
    (letter,) = dead.receive()
    assert letter["MessageId"] == message["MessageId"]
    assert letter["MessageAttributes"] == message["MessageAttributes"]
    assert letter["Attributes"]["SentTimestamp"] == message["Attributes"]["SentTimestamp"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == queue.arn
    assert letter["Attributes"]["ApproximateReceiveCount"] == "3"


def test_a_message_that_moves_leaves_its_place_to_the_next(queue, dead, clock):
    send(queue, "a")
    for _ in range(2):
        queue.receive()
        clock.advance(seconds(30))
    send(queue, "b")
    assert bodies(queue.receive(limit=1)) == ["b"]
    assert left(dead) == ["a"]


def test_the_attributes_of_a_queue_count_its_messages(queue, dead):
    send(queue, "a", "b", "c")
    queue.receive(limit=1)
    attributes = queue.attributes
    assert attributes["ApproximateNumberOfMessages"] == "2"
    assert attributes["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert json.loads(attributes["RedrivePolicy"]) == {
        "deadLetterTargetArn": dead.arn,
        "maxReceiveCount": 2,
    }
    assert "RedrivePolicy" not in dead.attributes


# --- FIFO -----------------------------------------------------------------------------------------


def test_a_group_comes_in_order_and_waits_while_one_of_it_is_in_flight(fifo, clock):
    send_fifo(fifo, "a1", "a2", "b1", "a3")
    first = fifo.receive(limit=2)
    assert bodies(first) == ["a1", "a2"]
    assert bodies(fifo.receive()) == ["b1"]
    fifo.delete(first[0]["ReceiptHandle"])
    assert fifo.receive() == []
    clock.advance(seconds(30))
    assert bodies(fifo.receive()) == ["a2", "b1", "a3"]


def test_what_was_put_off_still_holds_back_its_group(fifo, clock):
    send_fifo(fifo, "a1", "a2")
    (message,) = fifo.receive(limit=1)
    fifo.change_visibility(message["ReceiptHandle"], 100)
    clock.advance(seconds(99))
    assert fifo.receive() == []
    clock.advance(seconds(1))
    assert bodies(fifo.receive()) == ["a1", "a2"]


def test_a_group_on_a_standard_queue_holds_nothing_back(queue):
    send(queue, "1", "2", MessageGroupId="tenant")
    assert bodies(queue.receive(limit=1)) == ["1"]
    assert bodies(queue.receive(limit=1)) == ["2"]


def test_a_deduplication_id_counts_for_five_minutes_also_after_the_delete(fifo, clock):
    fields = {"MessageGroupId": "a", "MessageDeduplicationId": "d"}
    first = fifo.send({"MessageBody": "1", **fields})
    (message,) = fifo.receive()
    fifo.delete(message["ReceiptHandle"])
    clock.advance(seconds(299))
    assert fifo.send({"MessageBody": "2", **fields}) == first
    assert len(fifo) == 0
    clock.advance(seconds(1))
    assert fifo.send({"MessageBody": "3", **fields}) != first
    assert left(fifo) == ["3"]


def test_a_dead_letter_of_a_fifo_queue_is_dated_anew(clock):
    dead = InMemoryQueue("dead.fifo", clock=clock)
    queue = InMemoryQueue("q.fifo", clock=clock, dead_letter_queue=dead, max_receive_count=1)
    send_fifo(queue, "a1", "a2")
    (message,) = queue.receive(limit=1)
    clock.advance(seconds(30))
    assert bodies(queue.receive()) == ["a2"]
    (letter,) = dead.receive()
    sent = int(letter["Attributes"]["SentTimestamp"])
    assert sent == int(message["Attributes"]["SentTimestamp"]) + 30_000
    assert letter["Attributes"]["MessageDeduplicationId"] == letter["MessageId"]
    assert letter["Attributes"]["MessageGroupId"] == "a"


# --- what SQS refuses -----------------------------------------------------------------------------


def attribute(value="x", data_type="String"):
    return {"DataType": data_type, "StringValue": value}


REFUSED = [
    ("no body", {"MessageBody": ""}, "MissingParameter"),
    ("an illegal character", {"MessageBody": "a\x0b"}, "InvalidMessageContents"),
    ("a non-character", {"MessageBody": "a\uffff"}, "InvalidMessageContents"),
    ("half a pair", {"MessageBody": "\ud83d"}, "InvalidMessageContents"),
    (
        "eleven attributes",
        {"MessageAttributes": {f"a{number}": attribute() for number in range(11)}},
        "InvalidParameterValue",
    ),
    ("an empty value", {"MessageAttributes": {"a": attribute("")}}, "InvalidParameterValue"),
    ("a bad value", {"MessageAttributes": {"a": attribute("\x00")}}, "InvalidParameterValue"),
    (
        "no bytes",
        {"MessageAttributes": {"a": {"DataType": "Binary.png", "BinaryValue": b""}}},
        "InvalidParameterValue",
    ),
    (
        "received lists",
        {"MessageAttributes": {"a": attribute() | {"StringListValues": []}}},
        "UnsupportedOperation",
    ),
    ("too large by one byte", {"MessageBody": "é" + "x" * 1023}, "InvalidParameterValue"),
    (
        "too large by an attribute",
        {"MessageBody": "x" * 1016, "MessageAttributes": {"ab": attribute("c")}},
        "InvalidParameterValue",
    ),
    ("deduplication", {"MessageDeduplicationId": "d"}, "InvalidParameterValue"),
    ("a group too long", {"MessageGroupId": "g" * 129}, "InvalidParameterValue"),
    ("a blank in a group", {"MessageGroupId": "a b"}, "InvalidParameterValue"),
    ("a delay too long", {"DelaySeconds": 901}, "InvalidParameterValue"),
]


@pytest.mark.parametrize(
    ("fields", "code"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED]
)
def test_a_message_that_sqs_refuses_is_refused_alone_or_fails_alone(fields, code):
    queue = InMemoryQueue("echo", max_message_bytes=1024)
    sqs = InMemorySqs(queue)
    message = {"MessageBody": "body"} | fields
    with pytest.raises(ClientError) as caught:
        sqs.send_message(QueueUrl=queue.url, **message)
    assert code_of(caught) == code
    assert len(queue) == 0
    roomy = InMemoryQueue("echo", max_message_bytes=1024)
    if "too large" not in str(fields) and len(str(fields)) < 900:
        answer = InMemorySqs(roomy).send_message_batch(
            QueueUrl=roomy.url,
            Entries=[{"Id": "good", "MessageBody": "good"}, {"Id": "bad", **message}],
        )
        assert [one["Id"] for one in answer["Successful"]] == ["good"]
        (failed,) = answer["Failed"]
        assert failed["Id"] == "bad"
        assert failed["SenderFault"]
        assert failed["Code"].endswith(code)
        assert left(roomy) == ["good"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"MessageDeduplicationId": "d"}, "MissingParameter"),
        ({"MessageGroupId": "g"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g", "MessageDeduplicationId": "a b"}, "InvalidParameterValue"),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 1},
            "InvalidParameterValue",
        ),
    ],
)
def test_a_fifo_queue_has_rules_of_its_own(fifo, fields, code):
    with pytest.raises(ClientError) as caught:
        fifo.send({"MessageBody": "body", **fields})
    assert code_of(caught) == code


def test_a_message_of_exactly_the_limit_and_ten_attributes_is_taken():
    queue = InMemoryQueue("echo", max_message_bytes=1024)
    attributes = {f"a{number}": attribute() for number in range(10)}
    send(queue, "x" * (1024 - 10 * len("a0Stringx")), MessageAttributes=attributes)
    assert len(queue) == 1


ENTRIES = {
    "send_message_batch": {"MessageBody": "body"},
    "delete_message_batch": {"ReceiptHandle": "any"},
    "change_message_visibility_batch": {"ReceiptHandle": "any", "VisibilityTimeout": 1},
}


@pytest.mark.parametrize("operation", ENTRIES)
@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([str(number) for number in range(11)], "TooManyEntriesInBatchRequest"),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct"),
        (["a/b"], "InvalidBatchEntryId"),
        (["a:b"], "InvalidBatchEntryId"),
        (["é"], "InvalidBatchEntryId"),
        (["x" * 81], "InvalidBatchEntryId"),
        ([""], "InvalidBatchEntryId"),
    ],
)
def test_every_batch_call_has_the_same_rules_for_its_entries(sqs, queue, operation, ids, code):
    entries = [{"Id": one, **ENTRIES[operation]} for one in ids]
    with pytest.raises(ClientError) as caught:
        getattr(sqs, operation)(QueueUrl=queue.url, Entries=entries)
    assert caught.value.response["Error"]["Code"] == f"AWS.SimpleQueueService.{code}"
    assert len(queue) == 0


def test_the_messages_of_a_call_are_limited_together(sqs, queue):
    half = "x" * (limits.MESSAGE_BYTES // 2)
    entries = [{"Id": "1", "MessageBody": half}, {"Id": "2", "MessageBody": half}]
    sqs.send_message_batch(QueueUrl=queue.url, Entries=entries)
    entries[0]["MessageAttributes"] = {"a": attribute()}
    with pytest.raises(ClientError) as caught:
        sqs.send_message_batch(QueueUrl=queue.url, Entries=entries)
    assert code_of(caught) == "BatchRequestTooLong"
    assert len(queue) == 2


def test_one_expired_receipt_fails_alone(sqs, queue, clock):
    send(queue, "a", "b")
    expiring, held = queue.receive()
    queue.change_visibility(expiring["ReceiptHandle"], 1)
    clock.advance(seconds(1))
    entries = [
        {"Id": str(place), "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": 50}
        for place, one in enumerate([expiring, held])
    ]
    answer = sqs.change_message_visibility_batch(QueueUrl=queue.url, Entries=entries)
    assert answer["Successful"] == [{"Id": "1"}]
    (failed,) = answer["Failed"]
    assert failed["Code"] == "AWS.SimpleQueueService.MessageNotInflight"
    assert failed["SenderFault"]


# --- boto3's client -------------------------------------------------------------------------------


def test_the_client_speaks_as_boto3_does(sqs, queue):
    url = queue.url
    sent = sqs.send_message(QueueUrl=url, MessageBody="a")
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)
    (message,) = answer["Messages"]
    assert message["MessageId"] == sent["MessageId"]
    handle = message["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=60)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    assert sqs.receive_message(QueueUrl=url) == {}
    assert [operation for operation, _ in sqs.calls] == [
        "send_message",
        "receive_message",
        "change_message_visibility",
        "delete_message",
        "receive_message",
    ]


def test_batches_answer_for_each_entry_and_leave_out_an_empty_list(sqs, queue):
    send(queue, "a", "b")
    handles = [one["ReceiptHandle"] for one in queue.receive()]
    entries = [{"Id": str(place), "ReceiptHandle": one} for place, one in enumerate(handles)]
    answer = sqs.delete_message_batch(QueueUrl=queue.url, Entries=entries)
    assert answer == {"Successful": [{"Id": "0"}, {"Id": "1"}]}
    assert len(queue) == 0


def test_attributes_come_only_when_they_are_asked_for(sqs, queue):
    attributes = {"one": attribute("1"), "two": attribute("2")}
    send(queue, "a", MessageAttributes=attributes)

    def receive(**names):
        request = {"QueueUrl": queue.url, "VisibilityTimeout": 0, **names}
        (message,) = sqs.receive_message(**request)["Messages"]
        queue.messages[0].receives = 0
        return message

    assert not {"Attributes", "MessageAttributes"} & receive().keys()
    assert receive(MessageAttributeNames=["All"])["MessageAttributes"] == attributes
    assert list(receive(MessageAttributeNames=["two"])["MessageAttributes"]) == ["two"]
    asked = receive(MessageSystemAttributeNames=["SentTimestamp"])["Attributes"]
    assert list(asked) == ["SentTimestamp"]
    assert "ApproximateReceiveCount" in receive(AttributeNames=["All"])["Attributes"]


def test_attributes_of_a_queue_come_only_when_they_are_asked_for(sqs, queue):
    assert sqs.get_queue_attributes(QueueUrl=queue.url) == {}
    asked = sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["QueueArn"])
    assert asked == {"Attributes": {"QueueArn": queue.arn}}
    everything = sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["All"])
    assert everything == {"Attributes": queue.attributes}


@pytest.mark.parametrize("number", [0, 11])
def test_a_receive_takes_one_to_ten(sqs, queue, number):
    with pytest.raises(ClientError, match="MaxNumberOfMessages"):
        sqs.receive_message(QueueUrl=queue.url, MaxNumberOfMessages=number)


def test_an_unknown_queue_has_both_spellings(sqs):
    with pytest.raises(ClientError) as caught:
        sqs.send_message(QueueUrl="elsewhere", MessageBody="a")
    error = caught.value.response["Error"]
    assert error["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert error["QueryErrorCode"] == "QueueDoesNotExist"


def test_a_test_may_break_the_next_calls(sqs, queue):
    sqs.fail_next("send_message", "RequestThrottled", times=2)
    for _ in range(2):
        with pytest.raises(ClientError, match="RequestThrottled"):
            sqs.send_message(QueueUrl=queue.url, MessageBody="a")
    assert len(queue) == 0
    sqs.fail_next("send_message", TimeoutError(), answer_lost=True)
    with pytest.raises(TimeoutError):
        sqs.send_message(QueueUrl=queue.url, MessageBody="a")
    sqs.send_message(QueueUrl=queue.url, MessageBody="a")
    assert len(queue) == 2


@pytest.mark.parametrize(("status", "sender_fault"), [(400, True), (500, False)])
def test_a_test_may_break_single_entries(sqs, queue, status, sender_fault):
    sqs.fail_next("send_message_batch", aws_error("Trouble", "why", status=status), entries={1})
    entries = [{"Id": one, "MessageBody": one} for one in "abc"]
    answer = sqs.send_message_batch(QueueUrl=queue.url, Entries=entries)
    assert answer["Failed"] == [
        {"Id": "b", "Code": "Trouble", "Message": "why", "SenderFault": sender_fault}
    ]
    assert left(queue) == ["a", "c"]


# --- Lambda's event and context -------------------------------------------------------------------


def test_a_lambda_event_spells_a_message_as_lambda_does(queue):
    send(
        queue,
        "a",
        MessageGroupId="tenant",
        MessageAttributes={
            "text": attribute("ü"),
            "raw": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
        },
        MessageSystemAttributes={"AWSTraceHeader": attribute("Root=1-2-3")},
    )
    (record,) = lambda_event(queue.receive(), queue)["Records"]
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"] == queue.arn
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert record["messageAttributes"]["text"] == {
        "dataType": "String",
        "stringValue": "ü",
        "stringListValues": [],
        "binaryListValues": [],
    }
    assert base64.b64decode(record["messageAttributes"]["raw"]["binaryValue"]) == b"\x00\xff"
    message = Message.from_record(json.loads(json.dumps(record)))
    assert message.attributes == queue.messages[0].attributes
    assert (message.group_id, message.trace_header) == ("tenant", "Root=1-2-3")


def test_a_record_without_an_id_is_refused_by_name(queue):
    send(queue, "a", "b")
    event = lambda_event(queue.receive(), queue)
    del event["Records"][1]["messageId"]
    with pytest.raises(NotAnSqsEvent, match="messageId"):
        read_event(event)
    delivery = deliver(lambda *_: read_event(event), InMemoryQueue("empty"))
    assert delivery == Delivery()


def test_a_context_counts_down_by_its_clock(clock):
    context = lambda_context(seconds(30), function_name="echo", clock=clock)
    clock.advance(seconds(12.5))
    assert context.get_remaining_time_in_millis() == 17_500
    clock.advance(seconds(60))
    assert context.get_remaining_time_in_millis() == 0
    assert context.function_name == "echo"
    assert context.invoked_function_arn.endswith(":function:echo")
    assert context.log_stream_name
    assert lambda_context().aws_request_id != lambda_context().aws_request_id


# --- the event source mapping ---------------------------------------------------------------------


def failures(*ids):
    return {"batchItemFailures": [{"itemIdentifier": one} for one in ids]}


def raising(error):
    def respond(ids):
        raise error

    return respond


ALL, NONE = [True, True, True], [False, False, False]

RESPONSES = [
    ("nothing failed", lambda ids: failures(), ALL),
    ("one failed", lambda ids: failures(ids[1]), [True, False, True]),
    ("one failed, told twice", lambda ids: failures(ids[1], ids[1]), [True, False, True]),
    ("all failed", lambda ids: failures(*ids), NONE),
    ("null", lambda ids: None, ALL),
    ("an empty object", lambda ids: {}, ALL),
    ("a null list", lambda ids: {"batchItemFailures": None}, ALL),
    ("an empty id", lambda ids: failures(ids[0], ""), NONE),
    ("a null id", lambda ids: failures(ids[0], None), NONE),
    ("an unknown id", lambda ids: failures(ids[0], "another"), NONE),
    ("a number as id", lambda ids: failures(7), NONE),
    ("a list as id", lambda ids: failures([]), NONE),
    ("a wrong key in an item", lambda ids: {"batchItemFailures": [{"id": ids[0]}]}, NONE),
    ("items that are ids", lambda ids: {"batchItemFailures": ids[:1]}, NONE),
    ("a wrong key", lambda ids: {"failures": []}, NONE),
    ("a response of HTTP", lambda ids: {"statusCode": 200}, NONE),
    ("a text", lambda ids: "ok", NONE),
    ("a number", lambda ids: 42, NONE),
    ("true", lambda ids: True, NONE),
    ("a list", lambda ids: [], NONE),
    ("what is not JSON", lambda ids: {"batchItemFailures": {1, 2}}, NONE),
    ("an exception", raising(RuntimeError("boom")), NONE),
    ("an exit", raising(SystemExit(0)), NONE),
]


@pytest.mark.parametrize(
    ("respond", "gone"), [pytest.param(*case[1:], id=case[0]) for case in RESPONSES]
)
def test_the_poller_deletes_by_the_rules_of_lambda(queue, clock, respond, gone):
    send(queue, "a", "b", "c")
    delivery = deliver(
        lambda event, _: respond([record["messageId"] for record in event["Records"]]), queue
    )
    kept = [body for body, deleted in zip("abc", gone, strict=True) if not deleted]
    assert left(queue) == kept
    assert len(delivery.received) == 3
    assert len(delivery.deleted) == gone.count(True)
    assert queue.receive() == []  # Lambda makes nothing visible: the timeout does
    clock.advance(seconds(30))
    assert bodies(queue.receive()) == kept


def test_an_invocation_that_timed_out_keeps_its_batch_whatever_it_returned(queue, clock):
    send(queue, "a", "b")
    context = lambda_context(seconds(10), clock=clock)

    def slow(event, context):
        clock.advance(seconds(10))
        return failures()

    delivery = deliver(slow, queue, context)
    assert (delivery.deleted, delivery.response) == ((), failures())
    assert left(queue) == ["a", "b"]


def test_a_delivery_tells_what_the_handler_raised(queue):
    send(queue, "a")
    error = RuntimeError("boom")
    assert deliver(lambda *_: (_ for _ in ()).throw(error), queue).error is error


def test_an_interrupted_test_is_not_a_failed_job(queue):
    send(queue, "a")
    with pytest.raises(KeyboardInterrupt):
        deliver(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt), queue)


def test_an_empty_queue_invokes_nothing(queue):
    assert deliver(lambda *_: pytest.fail("invoked"), queue) == Delivery()


def test_a_batch_has_the_size_of_the_mapping(queue):
    send(queue, *"abc")
    assert len(deliver(lambda *_: None, queue, batch_size=2).deleted) == 2
    assert left(queue) == ["c"]


def test_a_handler_that_fails_for_ever_ends_in_the_dead_letter_queue(queue, dead, clock):
    send(queue, "good", "bad")

    def handler(event, _):
        return failures(*[r["messageId"] for r in event["Records"] if r["body"] == "bad"])

    for _ in range(3):
        deliver(handler, queue)
        clock.advance(seconds(30))
    assert (left(queue), left(dead)) == ([], ["bad"])


def test_a_handler_may_put_off_what_it_reports_as_failed(queue, sqs, clock):
    send(queue, "a")

    def handler(event, _):
        (record,) = event["Records"]
        sqs.change_message_visibility(
            QueueUrl=queue.url, ReceiptHandle=record["receiptHandle"], VisibilityTimeout=5
        )
        return failures(record["messageId"])

    deliver(handler, queue)
    clock.advance(seconds(5))
    assert len(queue.receive()) == 1

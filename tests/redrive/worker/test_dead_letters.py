"""What a dead letter carries, and where its cause is when it cannot carry it."""

import json

import pytest

from redrive import PermanentError
from redrive.limits import ENVELOPE_BYTES, MESSAGE_BYTES
from redrive.message import Envelope
from redrive.worker.jobs_table import JobsTable


def die(job):
    raise PermanentError("card 4111 1111 refused: " + "ß" * 3000)


def text(value: str) -> dict:
    return {"DataType": "String", "StringValue": value}


def envelope_of(letter: dict) -> dict:
    return json.loads(letter["MessageAttributes"]["redrive"]["StringValue"])


def test_a_dead_letter_keeps_body_attributes_group_and_trace_and_says_who_it_was(bench):
    attributes = {
        "text": text("täxt"),
        "number": {"DataType": "Number.int", "StringValue": "7"},
        "custom": text("x") | {"DataType": "String.uuid"},
        "binary": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
    }
    body = '{ "id":\t"a" , "text": "é\\u00e9" }'
    trace = {"AWSTraceHeader": text("Root=1-5e2f-1;Sampled=1")}
    message_id = bench.send(
        body, MessageAttributes=attributes, MessageGroupId="t", MessageSystemAttributes=trace
    )
    bench.deliver(bench.worker(die))
    (letter,) = bench.dead_letters()
    assert letter["Body"] == body
    assert {name: letter["MessageAttributes"][name] for name in attributes} == attributes
    assert letter["Attributes"]["AWSTraceHeader"] == "Root=1-5e2f-1;Sampled=1"
    assert letter["Attributes"]["MessageGroupId"] == "t"
    envelope = envelope_of(letter)
    assert envelope["v"] == 1
    assert envelope["id"] == "work:a"
    assert envelope["message_id"] == message_id
    assert envelope["queue"] == bench.queue.url
    assert envelope["sent_at"] == "2026-01-01T00:00:00.000Z"
    assert (envelope["replays"], envelope["force"]) == (0, 0)


def test_a_cause_says_what_went_wrong_where_and_when_within_its_size(bench):
    bench.send({"id": "a"})
    bench.deliver(bench.worker(die))
    (letter,) = bench.dead_letters()
    raw = letter["MessageAttributes"]["redrive"]["StringValue"]
    assert raw.isascii()
    assert len(raw) <= ENVELOPE_BYTES
    cause = json.loads(raw)["cause"]
    assert cause["type"] == "PermanentError"
    assert cause["message"].startswith("card 4111 1111 refused: ß")
    assert len(json.dumps(cause["message"])) <= 1024 + 2
    assert (cause["attempts"], cause["receives"]) == (1, 1)
    assert cause["function"] == "worker"
    assert cause["request_id"]
    assert cause["log_stream"]
    assert cause["failed_at"].endswith("Z")


def test_an_error_whose_text_fails_is_a_cause_without_a_message(bench):
    class Mute(PermanentError):
        def __str__(self):
            raise ValueError

    def run(job):
        raise Mute

    bench.send({"id": "a"})
    bench.deliver(bench.worker(run))
    cause = envelope_of(bench.dead_letters()[0])["cause"]
    assert (cause["type"], cause["message"]) == ("Mute", "")


def test_the_row_in_the_jobs_table_says_the_same(bench):
    message_id = bench.send({"id": "a"})
    bench.deliver(bench.worker(die))
    (row,) = bench.rows("jobs")
    assert row["id"] == {"S": "work:a"}
    assert row["record"] == {"S": f"message#{message_id}"}
    assert row["dead"] == {"BOOL": True}
    assert json.loads(row["cause"]["S"])["type"] == "PermanentError"
    assert int(row["expiration"]["N"]) > 0


def test_a_cause_that_is_too_long_for_the_table_is_cut_there_too(bench):
    def run(job):
        raise PermanentError("x" * 500_000)

    bench.send({"id": "a"}, MessageAttributes={f"a{n}": text(str(n)) for n in range(10)})
    bench.deliver(bench.worker(run))
    for row in bench.rows("jobs"):
        assert json.loads(row["cause"]["S"])["message"] == "x" * 1024


def test_a_message_that_is_no_job_has_its_row_under_its_message_id(bench):
    message_id = bench.send("hello")
    bench.deliver(bench.worker())
    (row,) = bench.rows("jobs")
    assert row["id"] == {"S": f"work:{message_id}"}


def test_ten_attributes_are_all_kept_and_the_row_alone_tells_the_cause(bench):
    attributes = {f"a{n}": text(str(n)) for n in range(10)}
    message_id = bench.send({"id": "a"}, MessageAttributes=attributes)
    bench.deliver(bench.worker(die))
    (letter,) = bench.dead_letters()
    assert letter["MessageAttributes"] == attributes
    rows = {row["record"]["S"]: json.loads(row["cause"]["S"]) for row in bench.rows("jobs")}
    # By its own id the worker knows a redelivery of it, by the copy's id a reader of the copy.
    assert rows.keys() == {f"message#{message_id}", f"message#{letter['MessageId']}"}
    assert {cause["type"] for cause in rows.values()} == {"PermanentError"}


@pytest.mark.parametrize(
    ("size", "carries"), [(MESSAGE_BYTES, False), (MESSAGE_BYTES - 8192, True)]
)
def test_a_message_near_the_size_limit_is_dead_lettered_with_its_cause_where_it_fits(
    bench, size, carries
):
    empty = json.dumps({"id": "a", "x": ""})
    body = json.dumps({"id": "a", "x": "x" * (size - len(empty))})
    bench.send(body)
    bench.deliver(bench.worker(die))
    (letter,) = bench.dead_letters()
    assert letter["Body"] == body
    assert ("redrive" in letter.get("MessageAttributes", {})) is carries
    assert len(bench.rows("jobs")) == 1 + (not carries)


def test_what_the_row_says_of_replays_outlives_a_death(bench, dynamodb):
    attributes = {f"a{n}": text(str(n)) for n in range(10)}
    message_id = bench.send({"id": "a"}, MessageAttributes=attributes)
    JobsTable("jobs", "idempotency", dynamodb).count_replay("work:a", message_id, 2)
    bench.deliver(bench.worker(die))
    (letter,) = bench.dead_letters()
    replays = {row["record"]["S"]: row["replays"]["N"] for row in bench.rows("jobs")}
    assert replays == {f"message#{message_id}": "2", f"message#{letter['MessageId']}": "2"}


@pytest.mark.parametrize("foreign", ["hello", '{"v": 2}', '{"v": 1, "replays": "many"}'])
def test_an_attribute_of_our_name_that_is_not_ours_is_carried_and_not_trusted(
    bench, foreign, lines
):
    bench.send({"id": "a"}, MessageAttributes={"redrive": text(foreign)})
    bench.deliver(bench.worker(die))
    (letter,) = bench.dead_letters()
    assert letter["MessageAttributes"]["redrive"]["StringValue"] == foreign
    assert len(bench.rows("jobs")) == 2
    (settled,) = [line for line in lines() if line.get("message") == "job dead-lettered"]
    assert "ignored" in settled["redrive_attribute"]


def test_a_replayed_message_keeps_its_count_its_first_send_and_its_publishers_metadata(bench):
    replayed = Envelope(
        sent_at="2025-12-31T23:00:00.000Z", replays=2, metadata={"tenant": "acme"}
    ).render()
    bench.send({"id": "a"}, MessageAttributes={"redrive": text(replayed)})
    bench.deliver(bench.worker(die))
    envelope = envelope_of(bench.dead_letters()[0])
    assert envelope["sent_at"] == "2025-12-31T23:00:00.000Z"
    assert envelope["replays"] == 2
    assert envelope["tenant"] == "acme"


def test_a_forced_replay_runs_a_finished_job_again_under_another_token(bench):
    worker = bench.worker()
    bench.send({"id": "a"})
    bench.deliver(worker)
    forced = Envelope(replays=1, force=1).render()
    bench.send({"id": "a"}, MessageAttributes={"redrive": text(forced)})
    bench.deliver(worker)
    assert [job.token for job in bench.runs] == ["work:a", "work:a#force1"]
    assert [job.id for job in bench.runs] == ["work:a", "work:a"]


def test_a_fifo_message_that_dies_twice_in_five_minutes_is_one_dead_letter(fifo_bench):
    fifo_bench.send({"id": "a"}, MessageGroupId="A", MessageDeduplicationId="1")
    message = fifo_bench.queue.messages[0]
    fifo_bench.deliver(fifo_bench.worker(die))
    fifo_bench.queue.messages.append(message)  # the delete was lost
    message.visible_at = 0
    fifo_bench.deliver(fifo_bench.worker(die))
    assert len(fifo_bench.dead) == 1

"""Listing and replaying, through the function, as an operator sees it."""

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from botocore.exceptions import ConnectTimeoutError

from redrive import PermanentError
from redrive.message import Cause, Envelope, Message, read_time
from redrive.testing import InMemorySqs, lambda_event
from tests.functions.replay.conftest import now

NOON, ONE, TWO = (f"2026-11-01T{hour}:00:00Z" for hour in (12, 13, 14))


class Throttled(PermanentError):
    pass


def text(value):
    return {"DataType": "String", "StringValue": value}


def put_letter(desk, id_, *, cause="Throttled", failed_at=NOON, sent_at=NOON, **more):
    """A dead letter that died at this time, by its own word."""
    told = Cause(
        type=cause,
        message="",
        fingerprint=f"{cause}-1",
        attempts=2,
        receives=2,
        failed_at=failed_at,
        function="f",
        request_id="r",
        log_stream="s",
    )
    fields = {"message_id": f"m-{id_}", "sent_at": sent_at, "cause": told} | more.pop("fields", {})
    desk.bench.sqs.send_message(
        QueueUrl=desk.bench.dead.url,
        MessageBody=json.dumps({"id": id_, **more.pop("payload", {})}),
        MessageAttributes={"redrive": text(Envelope(**fields).render())},
        **more,
    )


def move_by_sqs(desk, *ids):
    """Messages that were received too often, by a poller that never ran them."""
    for id_ in ids:
        desk.bench.send({"id": id_})
    for stored in desk.bench.queue.messages:
        stored.receives = 480
    assert desk.bench.queue.receive(10) == []


def envelopes(desk):
    event = lambda_event(desk.bench.queue.receive(10), desk.bench.queue)
    return [Message.from_record(one).envelope for one in event["Records"]]


# --- looking --------------------------------------------------------------------------------------


def test_a_list_groups_what_is_dead_by_cause_and_leaves_all_where_it_was(desk):
    desk.die("a", "b")
    desk.die("c", error=Throttled())
    answer = desk.inspect()
    assert (answer["scanned"], answer["matched"], answer["complete"]) == (3, 3, True)
    assert [(one["cause"], one["count"]) for one in answer["causes"]] == [
        ("PermanentError", 2),
        ("Throttled", 1),
    ]
    assert all(one["first"] <= one["last"] <= now() for one in answer["causes"])
    assert desk.dead() == ["a", "b", "c"]
    assert desk.hidden() == 0
    assert desk.waiting() == []


def test_a_message_is_described_without_what_is_in_it(desk):
    desk.die("a", card="4111 1111")
    answer = desk.inspect()
    (message,) = answer["messages"]
    assert message.keys() == {
        "id",
        "message_id",
        "cause",
        "attempts",
        "sent_at",
        "failed_at",
        "replays",
    }
    assert (message["id"], message["attempts"], message["replays"]) == ("work:a", 1, 0)
    assert "4111" not in json.dumps(answer)


def test_payloads_are_shown_when_they_are_asked_for(desk):
    desk.die("a", card="4111 1111")
    (message,) = desk.inspect(show_payload=True)["messages"]
    assert message["payload"] == {"id": "a", "card": "4111 1111"}


def test_an_answer_with_payloads_stays_within_what_lambda_returns(desk):
    desk.die(*range(9), much="x" * 500_000)
    answer = desk.inspect(show_payload=True)
    assert len(json.dumps(answer)) < 6_000_000
    assert "left out" in answer["messages"][8]["payload"]


def test_no_more_than_a_hundred_are_described_and_all_are_counted(desk):
    desk.put_dead(130)
    answer = desk.inspect()
    assert (len(answer["messages"]), answer["matched"]) == (100, 130)


def test_an_empty_queue_is_a_complete_answer(desk):
    answer = desk.ask(action="replay")
    assert (answer["matched"], answer["complete"], answer["errors"]) == (0, True, [])


def test_a_dry_run_says_what_would_be_and_does_nothing(desk):
    desk.die("a", "b")
    desk.run()
    calls = len(desk.bench.sqs.calls)
    answer = desk.ask(action="replay", dry_run=True)
    assert (answer["matched"], answer["replayed"], answer["dry_run"]) == (2, 0, True)
    made = {name for name, _ in desk.bench.sqs.calls[calls:]}
    assert made <= {"receive_message", "change_message_visibility_batch", "get_queue_attributes"}
    assert desk.dead() == ["a", "b"]
    assert desk.bench.dynamodb.scan(TableName="jobs")["Count"] == 2  # no row of a run


# --- replaying ------------------------------------------------------------------------------------


def test_a_replay_sends_everything_back_as_it_was(desk):
    attributes = {
        "text": text("ü"),
        "count": {"DataType": "Number.int", "StringValue": "7"},
        "kind": {"DataType": "String.uuid", "StringValue": "u-1"},
        "blob": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    body = '{"id":   "a", "ü": 1.0}'
    trace = {"AWSTraceHeader": text("Root=1-5759e988-bd862e3fe1be46a994272793")}
    desk.bench.send(
        body, MessageAttributes=attributes, MessageGroupId="tenant", MessageSystemAttributes=trace
    )
    first_sent = desk.bench.queue.messages[0].system["SentTimestamp"]
    desk.run(PermanentError())
    desk.bench.clock.advance(timedelta(hours=1))
    answer = desk.ask(action="replay")
    assert (answer["replayed"], answer["errors"], answer["complete"]) == (1, [], True)
    (stored,) = desk.bench.queue.messages
    assert stored.body == body
    own = {name: one for name, one in stored.attributes.items() if name != "redrive"}
    assert own == attributes
    assert stored.group_id == "tenant"
    assert stored.system["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]
    (envelope,) = envelopes(desk)
    assert (envelope.replays, envelope.force, envelope.cause) == (1, 0, None)
    assert read_time(envelope.sent_at) == float(first_sent)
    assert desk.dead() == []


def test_what_the_publisher_said_is_said_again(desk):
    said = {"expires_at": now(3600), "tenant": "t-1"}
    attributes = {"redrive": text(json.dumps({"v": 1, **said}))}
    desk.bench.send('{"id": "a"}', MessageAttributes=attributes)
    desk.run(PermanentError())
    desk.ask(action="replay")
    (envelope,) = envelopes(desk)
    assert {"expires_at": envelope.expires_at, **envelope.metadata} == said


def test_a_replayed_job_starts_at_no_attempts(desk):
    desk.die("a")
    desk.ask(action="replay")
    desk.run()
    assert [job.attempt for job in desk.bench.runs] == [1, 1]
    assert desk.dead() == desk.waiting() == []


def test_an_sns_envelope_stays_wrapped_once_however_often_it_is_replayed(desk):
    wrapped = json.dumps(
        {"Type": "Notification", "TopicArn": "arn:aws:sns:x", "Message": '{"id": "a"}'}
    )
    desk.bench.send(wrapped)
    for _ in range(3):
        desk.run(PermanentError())
        assert desk.ask(action="replay", ids=["a"])["replayed"] == 1
        assert desk.bench.queue.messages[0].body == wrapped


@pytest.mark.parametrize("by", ["key", "job id", "message id", "dead letter's message id"])
def test_ids_are_keys_job_ids_or_message_ids(desk, by):
    desk.die("a", "b", "c")
    chosen = desk.bench.dead.messages[1]
    original = json.loads(chosen.attributes["redrive"]["StringValue"])["message_id"]
    id_ = {"key": "b", "job id": "work:b", "message id": original}.get(by, chosen.id)
    answer = desk.ask(action="replay", ids=[id_, "no such id"])
    assert (answer["scanned"], answer["matched"], answer["replayed"]) == (3, 1, 1)
    assert desk.waiting() == ["b"]
    assert desk.dead() == ["a", "c"]
    assert desk.hidden() == 0


def test_a_number_is_the_same_id_as_its_text(desk):
    desk.die(7, 8)
    assert desk.ask(action="replay", ids=[7])["replayed"] == 1


def test_a_range_takes_its_beginning_and_leaves_its_end(desk):
    for id_, failed_at in (("before", NOON), ("in", ONE), ("end", TWO)):
        put_letter(desk, id_, failed_at=failed_at, sent_at=NOON)
    desk.ask(action="replay", failed={"from": ONE, "to": TWO})
    assert desk.waiting() == ["in"]


def test_the_time_of_the_send_and_that_of_the_death_are_two(desk):
    put_letter(desk, "a", sent_at=NOON, failed_at=TWO)
    assert desk.inspect(sent={"from": NOON, "to": ONE})["matched"] == 1
    assert desk.inspect(failed={"from": ONE})["matched"] == 1
    assert desk.inspect(sent={"from": ONE})["matched"] == 0
    assert desk.inspect(failed={"to": TWO})["matched"] == 0


def test_what_sqs_moved_has_no_time_of_death_and_its_own_cause(desk):
    move_by_sqs(desk, "moved")
    put_letter(desk, "told")
    answer = desk.inspect(failed={"from": NOON})
    assert (answer["matched"], answer["unknown_time"]) == (1, 1)
    assert desk.inspect()["unknown_time"] == 0
    answer = desk.ask(action="replay", cause="MovedBySQS")
    assert answer["replayed"] == 1
    assert desk.waiting() == ["moved"]


def test_an_attempt_of_what_sqs_moved_is_known_from_its_row(desk):
    desk.bench.send({"id": "a"})
    desk.bench.deliver(desk.bench.worker(lambda job: 1 / 0))
    desk.bench.clock.advance(timedelta(hours=1))
    desk.bench.queue.messages[0].receives = 480
    desk.bench.queue.receive()
    (message,) = desk.inspect()["messages"]
    assert (message["cause"], message["attempts"]) == ("MovedBySQS", 1)


def test_what_somebody_sent_to_the_dead_letter_queue_is_replayed_too(desk):
    desk.put_dead(1, MessageAttributes={"mine": text("1")})
    (message,) = desk.inspect()["messages"]
    assert message["cause"] == "Unknown"
    assert desk.ask(action="replay")["replayed"] == 1
    assert desk.bench.queue.messages[0].attributes["mine"] == text("1")


def test_a_body_that_is_no_job_is_listed_by_its_message_id(desk):
    message_id = desk.bench.send("hello")
    desk.run()
    (message,) = desk.inspect()["messages"]
    assert message["id"] == f"work:{message_id}"
    assert desk.ask(action="replay", ids=[message_id])["replayed"] == 1
    assert desk.bench.queue.messages[0].body == "hello"


@pytest.mark.parametrize("cause", ["Throttled", "Throttled-1"])
def test_a_cause_is_an_errors_type_or_a_fingerprint(desk, cause):
    put_letter(desk, "a")
    put_letter(desk, "b", cause="Other")
    desk.ask(action="replay", cause=cause)
    assert desk.waiting() == ["a"]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("data.amount > `100`", ["rich"]),
        ("data.amount", ["rich", "poor"]),
        ("starts_with(data.name, 'A')", ["rich"]),
        ("!data", ["none"]),
        ("contains(keys(@), 'data')", ["rich", "poor"]),
    ],
)
def test_where_asks_the_payload(desk, where, ids):
    put_letter(desk, "rich", payload={"data": {"amount": 101, "name": "Ada"}})
    put_letter(desk, "poor", payload={"data": {"amount": 0, "name": 7}})
    put_letter(desk, "none")
    desk.ask(action="replay", where=where)
    assert desk.waiting() == ids


def test_filters_are_anded(desk):
    put_letter(desk, "a", payload={"n": 1})
    put_letter(desk, "b", payload={"n": 2})
    put_letter(desk, "c", payload={"n": 1}, cause="Other")
    desk.ask(action="replay", cause="Throttled", where="n == `1`", ids=["a", "b", "c"])
    assert desk.waiting() == ["a"]


def test_a_limit_is_the_most_that_is_replayed(desk):
    desk.put_dead(70)
    answer = desk.ask(action="replay", limit=55)
    assert (answer["replayed"], answer["complete"]) == (55, True)
    assert (len(desk.waiting()), len(desk.dead()), desk.hidden()) == (55, 15, 0)


# --- nothing twice --------------------------------------------------------------------------------


def test_a_job_that_is_done_is_not_replayed_and_its_letter_goes(desk):
    desk.die("a", "b")
    desk.bench.send({"id": "a"})
    desk.run()
    assert desk.inspect()["skipped"] == {"already_succeeded": 1, "replay_limit": 0}
    assert len(desk.dead()) == 2
    answer = desk.ask(action="replay")
    assert (answer["matched"], answer["replayed"]) == (2, 1)
    assert answer["skipped"]["already_succeeded"] == 1
    assert desk.waiting() == ["b"]
    assert desk.dead() == []


def test_a_forced_replay_runs_a_job_that_is_done_under_a_new_token(desk):
    desk.die("a")
    desk.bench.send({"id": "a"})
    desk.run()
    assert desk.ask(action="replay", force=True)["replayed"] == 1
    desk.run()
    *_, token = [job.token for job in desk.bench.runs]
    assert re.fullmatch(r"work:a#force\d+", token)
    assert desk.dead() == []


def test_the_fourth_replay_of_a_message_is_refused_unless_it_is_forced(desk):
    desk.die("a")
    for _ in range(3):
        assert desk.ask(action="replay")["replayed"] == 1
        desk.run(PermanentError())
    answer = desk.ask(action="replay")
    assert (answer["replayed"], answer["skipped"]["replay_limit"]) == (0, 1)
    assert desk.dead() == ["a"]
    assert desk.ask(action="replay", force=True)["replayed"] == 1


def test_the_limit_of_replays_is_the_jobs_own(desk):
    desk.max_replays = 1
    desk.die("a")
    desk.ask(action="replay")
    desk.run(PermanentError())
    assert desk.ask(action="replay")["replayed"] == 0


def test_the_row_decides_where_the_letter_says_another_count(desk):
    desk.die("a")
    letter = desk.bench.dead.messages[0]
    told = Envelope.parse(letter.attributes["redrive"]["StringValue"])
    forged = replace(told, replays=99, cause=replace(told.cause, type="Forged"))
    letter.attributes["redrive"] = text(forged.render())
    (message,) = desk.inspect()["messages"]
    assert (message["cause"], message["replays"]) == ("PermanentError", 0)


def test_two_copies_of_one_death_are_one(desk):
    """Its worker was killed between the dead letter and the mark that says so."""
    for _ in range(2):
        put_letter(desk, "a")
    assert desk.inspect()["matched"] == 1
    answer = desk.ask(action="replay")
    assert (answer["scanned"], answer["matched"], answer["replayed"]) == (2, 1, 1)
    assert desk.waiting() == ["a"]
    assert desk.dead() == []


def test_copies_of_different_replays_are_two(desk):
    put_letter(desk, "a")
    put_letter(desk, "a", fields={"replays": 1})
    assert desk.inspect()["matched"] == 2


def test_the_second_copy_stays_where_the_first_could_not_be_sent(desk):
    for _ in range(2):
        put_letter(desk, "a")
    desk.bench.sqs.fail_next("send_message_batch", "InvalidMessageContents", entries=[0])
    assert desk.ask(action="replay")["replayed"] == 0
    assert (len(desk.dead()), desk.hidden()) == (2, 0)


def test_what_dies_again_during_a_run_is_not_replayed_by_it(desk):
    put_letter(desk, "early")
    put_letter(desk, "late", failed_at=now(+1.5))
    answer = desk.ask(action="replay")
    assert (answer["scanned"], answer["matched"]) == (2, 1)
    assert desk.dead() == ["late"]


# --- what has no room -----------------------------------------------------------------------------


def test_a_message_with_ten_attributes_keeps_them_and_its_replays_are_counted(desk):
    attributes = {f"a{number}": text(str(number)) for number in range(10)}
    desk.bench.send({"id": "a"}, MessageAttributes=attributes)
    for replays in range(3):
        desk.run(PermanentError())
        (message,) = desk.inspect()["messages"]
        assert (message["cause"], message["replays"]) == ("PermanentError", replays)
        assert desk.ask(action="replay")["replayed"] == 1
        assert desk.bench.queue.messages[0].attributes == attributes
    desk.run(PermanentError())
    assert desk.ask(action="replay")["skipped"]["replay_limit"] == 1


def test_a_message_without_room_cannot_be_forced_and_stays(desk):
    attributes = {f"a{number}": text(str(number)) for number in range(10)}
    desk.bench.send({"id": "a"}, MessageAttributes=attributes)
    desk.run(PermanentError())
    answer = desk.ask(action="replay", force=True)
    assert answer["replayed"] == 0
    assert "no room" in answer["errors"][0]["error"]
    assert len(desk.dead()) == 1


# --- the scan -------------------------------------------------------------------------------------


def test_a_scan_sees_all_of_a_long_queue_and_gives_back_what_it_does_not_want(desk):
    desk.put_dead(500)
    answer = desk.ask(action="replay", ids=[0, 499])
    assert (answer["scanned"], answer["replayed"]) == (500, 2)
    assert sorted(desk.waiting()) == [0, 499]
    assert (len(desk.dead()), desk.hidden()) == (498, 0)


class TwiceRead(InMemorySqs):
    """Delivers each message of the dead-letter queue twice, as SQS may."""

    def receive_message(self, **request):
        answer = super().receive_message(**request)
        for message in answer.get("Messages", ()):
            (stored,) = [
                one
                for queue in self._queues.values()
                for one in queue.messages
                if one.id == message["MessageId"]
            ]
            if stored.receives < 2:
                stored.visible_at = 0
        return answer


def test_a_message_that_is_read_twice_is_handled_once_by_its_newest_receipt(desk):
    desk.put_dead(60)
    sqs = TwiceRead(desk.bench.queue, desk.bench.dead)
    answer = desk.ask(desk.function(sqs=sqs), action="replay")
    assert (answer["scanned"], answer["replayed"], answer["errors"]) == (60, 60, [])
    assert sorted(desk.waiting()) == list(range(60))
    assert desk.dead() == []


def test_large_messages_are_sent_within_the_limit_of_a_call(desk):
    desk.die(*range(12), much="x" * 200 * 1024)
    answer = desk.ask(action="replay")
    assert (answer["replayed"], answer["errors"]) == (12, [])
    assert sorted(desk.waiting()) == list(range(12))


def test_one_that_sqs_refuses_stays_and_the_answer_says_why(desk):
    desk.put_dead(12)
    desk.bench.sqs.fail_next("send_message_batch", "InvalidMessageContents", entries=[3])
    answer = desk.ask(action="replay")
    assert (answer["replayed"], answer["failed"]) == (11, 1)
    (error,) = answer["errors"]
    assert error["id"] == "work:3"
    assert "InvalidMessageContents" in error["error"]
    assert desk.dead() == [3]
    assert desk.hidden() == 0


def test_what_sqs_refuses_for_a_moment_is_sent_again(desk):
    from redrive.testing import aws_error

    desk.put_dead(3)
    busy = aws_error("InternalError", status=500)
    desk.bench.sqs.fail_next("send_message_batch", busy, entries=[1])
    desk.bench.sqs.fail_next("delete_message_batch", busy, entries=[2])
    answer = desk.ask(action="replay")
    assert (answer["replayed"], answer["errors"]) == (3, [])
    assert desk.dead() == []


def test_one_that_was_sent_but_not_deleted_is_told_and_runs_once_in_the_end(desk):
    desk.put_dead(2)
    desk.bench.sqs.fail_next("delete_message_batch", "ReceiptHandleIsInvalid", entries=[0])
    answer = desk.ask(action="replay")
    assert answer["replayed"] == 2
    assert "not deleted" in answer["errors"][0]["error"]
    desk.run()
    assert desk.ask(action="replay")["skipped"]["already_succeeded"] == 1
    desk.run()
    assert sorted(desk.bench.ids_run()) == ["0", "1"]
    assert desk.dead() == []


@pytest.mark.parametrize(("times", "left"), [(1, 0), (9, 1)], ids=["once", "always"])
def test_what_the_answer_to_a_delete_leaves_out_counts_as_kept(desk, monkeypatch, times, left):
    desk.put_dead(2)
    delete, calls = desk.bench.sqs.delete_message_batch, []

    def deletes_but_one(**request):
        entries = request.pop("Entries")
        calls.append(entries)
        if len(calls) <= times:
            entries = entries[1:]
        return delete(**request, Entries=entries) if entries else {}

    monkeypatch.setattr(desk.bench.sqs, "delete_message_batch", deletes_but_one)
    answer = desk.ask(action="replay")

    assert answer["replayed"] == 2
    assert len(desk.dead()) == left == len(answer["errors"])
    assert all("not deleted: NotConfirmed" in one["error"] for one in answer["errors"])


def test_connections_that_fail_now_and_then_cost_nothing(desk):
    desk.put_dead(30)
    lost = ConnectTimeoutError(endpoint_url="sqs")
    for _ in range(2):
        desk.bench.sqs.fail_next("receive_message", lost)
    assert desk.ask(action="replay")["replayed"] == 30


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("receive_message", "AccessDenied"),
        ("receive_message", ConnectTimeoutError(endpoint_url="sqs")),
        ("send_message_batch", "AccessDenied"),
    ],
)
def test_what_would_fail_for_all_stops_the_run_and_a_second_run_does_the_rest(
    desk, monkeypatch, operation, error
):
    monkeypatch.setattr("replay.scan._PAUSE_SECONDS", 0)
    desk.put_dead(30)
    desk.bench.sqs.fail_next(operation, error, times=10)
    answer = desk.ask(action="replay")
    assert (answer["replayed"], answer["complete"]) == (0, False)
    assert (error if isinstance(error, str) else "ConnectTimeout") in answer["incomplete"]
    assert (len(desk.dead()), desk.hidden(), desk.waiting()) == (30, 0, [])
    desk.bench.sqs._faults.clear()
    assert desk.ask(action="replay")["replayed"] == 30
    assert len(desk.waiting()) == 30


def test_at_the_in_flight_limit_nothing_is_not_an_empty_queue(desk, monkeypatch):
    desk.put_dead(3)
    desk.bench.sqs.fail_next("receive_message", "OverLimit")
    assert desk.ask()["incomplete"] == "in-flight limit"
    monkeypatch.setattr("replay.scan._NEAR_IN_FLIGHT_LIMIT", 3)
    desk.bench.dead.receive(3, 600)
    assert desk.ask()["incomplete"] == "in-flight limit"


def test_what_another_reader_has_is_not_taken_for_gone(desk):
    desk.put_dead(3)
    desk.bench.dead.receive(2, 600)
    answer = desk.ask()
    assert (answer["scanned"], answer["complete"], answer["confirm"]) == (1, False, None)
    assert "another reader" in answer["incomplete"]


def test_a_killed_runs_messages_that_come_back_in_time_are_seen(desk):
    desk.put_dead(3)
    held = desk.bench.dead.receive(2, 600)
    receive = desk.bench.dead.receive

    def come_back(*arguments):
        for message in held:
            desk.bench.dead.change_visibility(message["ReceiptHandle"], 0)
        held.clear()
        return receive(*arguments)

    desk.bench.dead.receive = come_back
    answer = desk.ask()
    assert (answer["scanned"], answer["complete"]) == (3, True)


def test_tables_that_cannot_be_read_stop_the_run_before_anything_is_sent(desk, monkeypatch):
    desk.put_dead(3)

    def denied(**request):
        from redrive.testing import aws_error

        raise aws_error("AccessDeniedException")

    monkeypatch.setattr(desk.bench.dynamodb, "batch_get_item", denied)
    answer = desk.ask(action="replay")
    assert "AccessDenied" in answer["incomplete"]
    assert (len(desk.dead()), desk.hidden(), desk.waiting()) == (3, 0, [])


# --- FIFO -----------------------------------------------------------------------------------------


def send_group(desk, *ids):
    for id_ in ids:
        desk.bench.send({"id": id_}, MessageGroupId=id_[0], MessageDeduplicationId=id_)


def test_groups_keep_their_names_and_their_order(fifo_desk):
    send_group(fifo_desk, "A1", "B1", "A2", "A3", "B2")
    fifo_desk.run(PermanentError())
    assert fifo_desk.ask(action="replay")["replayed"] == 5
    order = fifo_desk.waiting()
    assert [one for one in order if one[0] == "A"] == ["A1", "A2", "A3"]
    assert [one for one in order if one[0] == "B"] == ["B1", "B2"]
    assert {one.group_id for one in fifo_desk.bench.queue.messages} == {"A", "B"}


def test_long_groups_keep_their_order_too(fifo_desk):
    send_group(fifo_desk, *(f"{group}{number:03}" for number in range(40) for group in "ABC"))
    fifo_desk.run(PermanentError())
    assert fifo_desk.ask(action="replay")["replayed"] == 120
    for group in "ABC":
        of_group = [one for one in fifo_desk.waiting() if one[0] == group]
        assert of_group == sorted(of_group)
        assert len(of_group) == 40


def test_a_forced_replay_arrives_after_a_plain_one_that_was_killed_before_its_delete(fifo_desk):
    send_group(fifo_desk, "A1")
    fifo_desk.run(PermanentError())
    letter = fifo_desk.bench.dead.messages[0]
    fifo_desk.ask(action="replay")
    fifo_desk.bench.dead.messages.append(replace(letter, visible_at=0))
    fifo_desk.ask(action="replay", force=True)
    assert fifo_desk.waiting() == ["A1", "A1"]


def test_a_replay_within_five_minutes_arrives_and_the_same_one_twice_arrives_once(fifo_desk):
    send_group(fifo_desk, "A1")
    fifo_desk.run(PermanentError())
    letter = fifo_desk.bench.dead.messages[0]
    fifo_desk.ask(action="replay")
    assert fifo_desk.waiting() == ["A1"]
    # As after a kill between the send and the delete: the letter is there still.
    fifo_desk.bench.dead.messages.append(replace(letter, visible_at=0))
    fifo_desk.ask(action="replay")
    assert fifo_desk.waiting() == ["A1"]
    fifo_desk.run(PermanentError())
    fifo_desk.ask(action="replay")
    assert fifo_desk.waiting() == ["A1"]


def test_what_comes_after_one_that_was_refused_does_not_overtake_it(fifo_desk):
    send_group(fifo_desk, "A1", "A2", "A3", "B1")
    fifo_desk.run(PermanentError())
    fifo_desk.bench.sqs.fail_next("send_message_batch", "InvalidMessageContents", entries=[0])
    answer = fifo_desk.ask(action="replay")
    assert (answer["replayed"], answer["failed"]) == (1, 1)
    assert fifo_desk.waiting() == ["B1"]
    assert fifo_desk.dead() == ["A1", "A2", "A3"]
    assert fifo_desk.ask(action="replay")["replayed"] == 3
    assert fifo_desk.waiting() == ["B1", "A1", "A2", "A3"]


def test_what_a_group_hides_is_not_taken_for_gone(fifo_desk):
    send_group(fifo_desk, *(f"A{number:02}" for number in range(15)))
    fifo_desk.run(PermanentError())
    answer = fifo_desk.ask(action="replay", ids=["A14"])
    assert answer["replayed"] == 0
    assert "about 5 messages" in answer["incomplete"]
    assert "of a group" in answer["incomplete"]


def test_the_time_of_the_send_is_the_same_on_fifo(fifo_desk):
    send_group(fifo_desk, "A1")
    sent_at = fifo_desk.bench.queue.messages[0].system["SentTimestamp"]
    fifo_desk.bench.clock.advance(timedelta(hours=2))
    fifo_desk.run(PermanentError())
    (message,) = fifo_desk.inspect()["messages"]
    assert read_time(message["sent_at"]) == float(sent_at)


def test_what_sqs_moved_on_fifo_has_no_time_of_its_send(fifo_desk):
    send_group(fifo_desk, "A1")
    fifo_desk.bench.queue.messages[0].receives = 480
    fifo_desk.bench.queue.receive()
    answer = fifo_desk.inspect(sent={"from": NOON})
    assert (answer["matched"], answer["unknown_time"]) == (0, 1)
    assert fifo_desk.inspect()["messages"][0]["sent_at"] is None

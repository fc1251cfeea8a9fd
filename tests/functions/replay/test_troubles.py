"""What is odd, refused, late or killed: the answer is true, and nothing is lost or hidden."""

import json
import time
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from random import Random

import pytest

from redrive import PermanentError
from redrive.message import Envelope
from redrive.testing import InMemorySqs, aws_error, lambda_context
from redrive.worker.jobs_table import JobsTable
from replay.errors import BadEvent
from replay.pace import Pace
from tests.functions.replay.conftest import now
from tests.functions.replay.test_replay import put_letter, text
from tests.functions.replay.test_runs import let_lock_lapse, lock_of, run_rows, slowly
from tests.redrive.worker.conftest import Died, Life


def refuse(code="AccessDeniedException"):
    def call(**request):
        raise aws_error(code)

    return call


# --- odd letters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1960-01-01T00:00:00Z", "soon"],
)
def test_a_time_that_cannot_be_is_unknown_and_stops_nobody(desk, odd):
    put_letter(desk, "odd", failed_at=odd, sent_at=odd)
    put_letter(desk, "even")
    answer = desk.inspect()
    told = {one["id"]: one for one in answer["messages"]}
    assert told["work:odd"]["failed_at"] is None
    assert told["work:odd"]["sent_at"] is None
    assert desk.inspect(failed={"from": "2026-01-01T00:00:00Z"})["unknown_time"] == 1
    assert desk.ask(action="replay")["replayed"] == 2


def test_a_publishers_forged_times_reach_nobody(desk):
    forged = Envelope(replays=1, sent_at="0001-01-01T00:00:00+14:00")
    desk.bench.send({"id": "a"}, MessageAttributes={"redrive": text(forged.render())})
    desk.run(PermanentError())
    assert desk.inspect()["matched"] == 1
    assert desk.ask(action="replay")["replayed"] == 1


def test_a_clock_that_is_far_ahead_hides_no_letter(desk):
    put_letter(desk, "ahead", failed_at=now(+3600))
    assert desk.inspect()["matched"] == 1


def test_a_forged_message_id_that_no_key_holds_is_not_taken(desk):
    put_letter(desk, "a", fields={"message_id": "x" * 1500})
    assert desk.ask(action="replay")["replayed"] == 1


@pytest.mark.parametrize(
    "fields", [{"replays": 10**30}, {"force": 10**30}, {"queue": "https://evil.example/q"}]
)
def test_a_forged_envelope_sends_nothing_elsewhere_and_stops_nobody(desk, fields):
    put_letter(desk, "forged", fields=fields)
    put_letter(desk, "other")
    answer = desk.ask(action="replay")
    assert "other" in desk.waiting()
    assert set(desk.waiting()) | set(desk.dead()) == {"forged", "other"}
    assert answer["errors"] == []


def test_a_blank_body_is_listed_and_purged_by_its_id(desk):
    desk.bench.sqs.send_message(QueueUrl=desk.bench.dead.url, MessageBody=" ")
    id_ = desk.bench.dead.messages[0].id
    token = desk.inspect(ids=[id_])["confirm"]
    assert desk.ask(action="purge", ids=[id_], confirm=token)["purged"] == 1


def test_two_bodies_under_one_message_id_are_two(desk):
    for body in ("x", "y"):
        put_letter(desk, body, fields={"message_id": "m-1"})
    assert desk.ask(action="replay")["replayed"] == 2
    assert sorted(desk.waiting()) == ["x", "y"]


def test_two_bodies_under_one_message_id_are_two_on_fifo(fifo_desk):
    for body in ("x", "y"):
        more = {"MessageGroupId": "G", "MessageDeduplicationId": body}
        put_letter(fifo_desk, body, fields={"message_id": "m-1"}, **more)
    assert fifo_desk.ask(action="replay")["replayed"] == 2
    assert fifo_desk.waiting() == ["x", "y"]


class TwiceInOneAnswer(InMemorySqs):
    """Gives the first message of an answer twice in it, with two receipts."""

    def receive_message(self, **request):
        answer = super().receive_message(**request)
        if messages := answer.get("Messages"):
            (stored,) = [
                one
                for queue in self._queues.values()
                for one in queue.messages
                if one.id == messages[0]["MessageId"]
            ]
            again = dict(messages[0], ReceiptHandle=messages[0]["ReceiptHandle"] + "-2")
            stored.receipt_handle = again["ReceiptHandle"]
            messages.append(again)
        return answer


def test_two_receipts_of_one_message_in_one_answer_are_one_message(desk):
    desk.put_dead(5)
    sqs = TwiceInOneAnswer(desk.bench.queue, desk.bench.dead)
    answer = desk.ask(desk.function(sqs=sqs), action="replay")
    assert (answer["scanned"], answer["replayed"], answer["errors"]) == (5, 5, [])
    assert desk.dead() == []


def test_a_replayed_job_that_is_not_mended_has_all_its_attempts_again(desk):
    desk.bench.send({"id": "a"})
    desk.bench.deliver_until_settled(desk.bench.worker(lambda job: 1 / 0))
    desk.ask(action="replay")
    desk.bench.runs.clear()
    desk.bench.deliver_until_settled(desk.bench.worker(lambda job: 1 / 0))
    assert [job.attempt for job in desk.bench.runs] == [1, 2, 3]
    (message,) = desk.inspect()["messages"]
    assert (message["attempts"], message["replays"]) == (3, 1)


def test_a_count_that_comes_after_the_next_death_still_counts(desk):
    """A ten-attribute message that dies before the replay has counted it."""
    table = JobsTable("jobs", "idempotency", desk.bench.dynamodb)
    desk.bench.send(
        {"id": "a"}, MessageAttributes={f"a{number}": text("x") for number in range(10)}
    )
    message_id = desk.bench.queue.messages[0].id
    desk.run(PermanentError())
    table.count_replay("work:a", message_id, 3)
    assert desk.ask(action="replay")["skipped"]["replay_limit"] == 1


def test_two_forced_messages_of_one_job_both_run(desk):
    desk.die("a", "a")
    desk.bench.send({"id": "a"})
    desk.run()
    desk.bench.runs.clear()
    assert desk.ask(action="replay", force=True)["replayed"] == 2
    desk.run()
    tokens = {job.token for job in desk.bench.runs}
    assert len(tokens) == 2
    assert all(token.startswith("work:a#force") for token in tokens)


def test_a_forced_letter_that_is_sent_twice_runs_once(desk):
    """A kill, or a refused delete, between the two."""
    desk.die("a")
    desk.bench.sqs.fail_next("delete_message_batch", "ReceiptHandleIsInvalid", entries=[0])
    for _ in range(2):
        assert desk.ask(action="replay", force=True)["replayed"] == 1
        desk.bench.runs.clear()
        desk.run()
    assert desk.bench.runs == []
    assert desk.dead() == []


def test_a_job_that_was_forced_before_is_forced_under_another_number(desk):
    for number in (1, 2):
        desk.die("a") if number == 1 else desk.put_dead(0)
        desk.bench.sqs.send_message(QueueUrl=desk.bench.dead.url, MessageBody='{"id": "a"}')
        desk.ask(action="replay", force=True)
        desk.run()
    tokens = [job.token for job in desk.bench.runs if "#" in job.token]
    assert len(set(tokens)) == len(tokens) == 3


# --- odd events -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("nosuch(id)", "no function 'nosuch'"),
        ("id && [?nosuch(@)]", "no function"),
        ("contains(id)", "takes 2 arguments"),
        ("length(id, id)", "takes 1 argument"),
        ("[::0]", "step of 0"),
    ],
)
def test_an_expression_that_fits_no_payload_is_refused_at_once(desk, where, says):
    with pytest.raises(BadEvent, match=says):
        desk.inspect(where=where)


@pytest.mark.parametrize(
    "where", ["floor(to_number(amount)) > `1`", "merge(@, amount)", "not_null(a, b, amount)"]
)
def test_an_expression_that_fails_for_one_payload_selects_the_others(desk, where):
    put_letter(desk, "odd", payload={"amount": "inf"})
    put_letter(desk, "even", payload={"amount": "7"})
    answer = desk.ask(action="replay", where=where)
    assert answer["complete"]
    assert desk.hidden() == 0


def test_an_event_that_no_row_holds_is_refused(desk):
    with pytest.raises(BadEvent, match="100000 bytes"):
        desk.ask(action="replay", ids=["ü" * 500] * 400)
    with pytest.raises(BadEvent, match="0 to 100"):
        desk.ask(action="replay", canary=3000)
    assert run_rows(desk) == []


@pytest.mark.parametrize(
    "event", [{"continue": True}, {"continue": "x"}, {"continue": "x", "hop": 1}]
)
def test_what_a_run_says_to_itself_is_not_for_operators(desk, event):
    with pytest.raises(BadEvent, match="what a run says to itself"):
        desk.function()(event, lambda_context())


def test_a_payload_that_grows_as_json_is_left_out(desk):
    desk.die(*range(60), many=[1e15] * 10_000)
    assert len(json.dumps(desk.inspect(show_payload=True))) < 6_000_000


# --- canary ---------------------------------------------------------------------------------------


def test_a_canary_that_found_no_time_is_sent_by_the_next_hop(desk):
    desk.die(*range(30))
    function = slowly(desk, seconds=0)
    assert desk.ask(function, action="replay", canary=5)["replayed"] == 0
    (event,) = desk.invoked.events
    answer = function(event, lambda_context(timedelta(seconds=31)))
    assert answer["replayed"] == 5  # and waits for them


def test_a_canary_of_which_none_could_be_sent_stops_the_run(desk):
    desk.die(*range(30))
    desk.bench.sqs.fail_next(
        "send_message_batch", "InvalidMessageContents", entries=range(10), times=9
    )
    answer = desk.ask(action="replay", canary=5)
    assert (answer["replayed"], answer["failed"]) == (0, 5)
    assert answer["incomplete"] == "canary: 5 could not be done"
    assert len(desk.dead()) == 30


def test_one_of_a_canary_that_could_not_be_sent_stops_the_run(desk):
    desk.die(*range(30))
    desk.bench.sqs.fail_next("send_message_batch", "InvalidMessageContents", entries=[1])
    answer = desk.ask(action="replay", canary=5)
    assert (answer["replayed"], answer["failed"], answer["complete"]) == (4, 1, False)


def test_a_canary_that_found_too_little_time_is_made_full_by_the_next_hop(desk):
    desk.die(*range(30))
    function = slowly(desk, seconds=0.4)
    first = desk.ask(function, action="replay", canary=20, rate=10)
    assert 0 < first["replayed"] < 20
    desk.run()
    (event,) = desk.invoked.events
    answer = function(event, lambda_context(timedelta(seconds=33)))
    assert answer["replayed"] == 20  # and waits for them


def test_a_canary_of_nothing_is_no_hindrance(desk):
    answer = desk.ask(action="replay", canary=5)
    assert (answer["replayed"], answer["complete"]) == (0, True)


def test_tables_that_fail_while_a_canary_is_awaited_are_told(desk, monkeypatch):
    desk.die(*range(30))
    send = desk.bench.sqs.send_message_batch

    def then_denied(**request):
        answer = send(**request)
        monkeypatch.setattr(desk.bench.dynamodb, "batch_get_item", refuse())
        return answer

    monkeypatch.setattr(desk.bench.sqs, "send_message_batch", then_denied)
    answer = desk.ask(action="replay", canary=5)
    assert answer["replayed"] == 5
    assert answer["incomplete"].startswith("canary: tables cannot be read")


# --- kills between hops ---------------------------------------------------------------------------


@pytest.mark.parametrize("calls_until_death", [20, 30, 40, 60, 80])
def test_a_limit_holds_although_a_hop_is_killed(desk, calls_until_death):
    desk.put_dead(90)
    desk.ask(slowly(desk), action="replay", rate=100, limit=40)
    (event,) = desk.invoked.events
    life = Life()
    life.calls_left = calls_until_death
    killed = desk.function(
        sqs=life.client(desk.bench.sqs), dynamodb=life.client(desk.bench.dynamodb)
    )
    context = lambda_context(timedelta(minutes=15))
    with suppress(Died):
        killed(event, context)
    desk.bench.clock.advance(timedelta(minutes=2))
    let_lock_lapse(desk)
    desk.function()(event, context)  # Lambda delivers it again
    assert len(desk.waiting()) <= 40


def test_a_canary_whose_run_was_killed_is_not_sent_twice(desk):
    desk.die(*range(30))
    function = slowly(desk, seconds=0)
    desk.ask(function, action="replay", canary=5)
    (event,) = desk.invoked.events
    life = Life()
    killed = desk.function(
        sqs=life.client(desk.bench.sqs), dynamodb=life.client(desk.bench.dynamodb)
    )
    desk.bench.sqs.fail_next("delete_message_batch", "AccessDenied", times=9)
    context = lambda_context(timedelta(minutes=15))
    original = desk.bench.sqs.send_message_batch

    def send_and_die(**request):
        original(**request)
        life.end()

    desk.bench.sqs.send_message_batch = send_and_die
    with pytest.raises(Died):
        killed(event, context)
    del desk.bench.sqs.send_message_batch
    desk.bench.clock.advance(timedelta(minutes=2))
    let_lock_lapse(desk)
    answer = desk.function()(event, context)
    assert "killed while its canary went" in answer["incomplete"]
    assert len(desk.waiting()) == 5


def test_what_a_killed_hop_may_have_sent_is_counted_and_told(desk):
    desk.put_dead(90)
    desk.ask(slowly(desk, seconds=0), action="replay", limit=40)
    (event,) = desk.invoked.events
    life = Life()

    def die(**request):
        life.end()

    desk.bench.sqs.send_message_batch = die
    with pytest.raises(Died):
        desk.function()(event, lambda_context(timedelta(minutes=15)))
    del desk.bench.sqs.send_message_batch
    desk.bench.clock.advance(timedelta(minutes=2))
    let_lock_lapse(desk)
    answer = desk.function()(event, lambda_context(timedelta(minutes=15)))
    assert len(desk.waiting()) == answer["replayed"] <= 40
    assert answer["complete"] is False
    assert "killed" in answer["incomplete"]


def test_a_purge_that_goes_on_deletes_no_more_than_was_looked_at(desk):
    desk.die(*range(5))
    token = desk.inspect()["confirm"]
    desk.ask(action="replay", ids=[3, 4])
    desk.run()
    desk.die("late1", "late2")
    function = slowly(desk, seconds=0)
    desk.ask(function, action="purge", confirm=token)
    last = desk.play_hops(function)
    assert (last["purged"], last["complete"]) == (3, True)
    assert desk.dead() == ["late1", "late2"]


# --- the lock, and the row ------------------------------------------------------------------------


def is_locked(desk):
    _, lock = lock_of(desk)
    return bool(lock) and int(lock["until"]["N"]) > time.time() * 1000


def test_a_run_whose_row_cannot_be_written_does_not_begin_and_locks_nobody_out(desk, monkeypatch):
    desk.die("a")
    with monkeypatch.context() as denied:
        denied.setattr(desk.bench.dynamodb, "put_item", refuse())
        with pytest.raises(Exception, match="AccessDenied"):
            desk.ask(action="replay")
    assert not is_locked(desk)
    assert desk.dead() == ["a"]


def test_a_row_that_cannot_be_written_at_the_end_is_told_and_locks_nobody_out(
    desk, monkeypatch, capsys
):
    desk.die("a")
    send = desk.bench.sqs.send_message_batch

    def then_denied(**request):
        monkeypatch.setattr(desk.bench.dynamodb, "put_item", refuse())
        return send(**request)

    monkeypatch.setattr(desk.bench.sqs, "send_message_batch", then_denied)
    answer = desk.ask(action="replay")
    assert answer["replayed"] == 1
    assert "its row cannot be written" in answer["incomplete"]
    assert not is_locked(desk)
    assert '"Replayed":[1' in capsys.readouterr().out.replace(" ", "")


def test_a_job_that_cannot_be_looked_up_locks_nobody_out(desk):
    function = desk.function()
    function._build = lambda build=function._build: build()
    function._ssm.values = {}
    with pytest.raises(Exception, match="no job 'work'"):
        desk.ask(function, action="replay")
    assert not is_locked(desk)


def test_a_lock_that_botocore_takes_twice_is_its_own(desk, monkeypatch):
    desk.die("a")
    update = desk.bench.dynamodb.update_item
    monkeypatch.setattr(
        desk.bench.dynamodb,
        "update_item",
        lambda **request: (update(**request), update(**request))[1],
    )
    assert desk.ask(action="replay")["replayed"] == 1


def test_after_something_was_sent_a_fault_is_an_answer_and_not_an_error(desk, monkeypatch):
    desk.die("a")
    monkeypatch.setattr("replay.scan.Scan.missed", lambda _: 1 / 0)
    answer = desk.ask(action="replay")
    assert (answer["replayed"], answer["incomplete"]) == (1, "failed: ZeroDivisionError")


def test_an_answer_comes_although_the_last_calls_hang(desk, monkeypatch):
    import threading

    desk.put_dead(3)
    hang = threading.Event()
    monkeypatch.setattr("replay.function.ANSWER_SECONDS", 0.3)
    receive = desk.bench.sqs.receive_message

    def hanging(**request):
        hang.wait(20)
        return receive(**request)

    monkeypatch.setattr(desk.bench.sqs, "receive_message", hanging)
    answer = desk.ask(action="replay")
    hang.set()
    for thread in threading.enumerate():
        if thread.name.startswith("hop"):
            thread.join()
    assert answer["complete"] is False
    assert answer["run"] in answer["incomplete"]


# --- what is not complete says so -----------------------------------------------------------------


def test_rows_that_could_not_be_read_are_no_complete_list(desk, monkeypatch):
    desk.die("a", "b")

    def busy(RequestItems):  # noqa: N803
        return {
            "Responses": {name: [] for name in RequestItems},
            "UnprocessedKeys": RequestItems,
        }

    monkeypatch.setattr(desk.bench.dynamodb, "batch_get_item", busy)
    answer = desk.inspect()
    assert (answer["matched"], answer["complete"], answer["confirm"]) == (0, False, None)
    assert "rows of 2" in answer["incomplete"]


def test_messages_that_could_not_be_given_back_are_told(desk):
    desk.put_dead(3)
    busy = aws_error("InternalError", status=500)
    desk.bench.sqs.fail_next("change_message_visibility_batch", busy, entries=[0, 1, 2], times=2)
    answer = desk.inspect()
    assert "3 messages are hidden" in answer["incomplete"]


def test_what_could_not_be_done_is_no_complete_run(desk):
    desk.put_dead(3)
    desk.bench.sqs.fail_next("send_message_batch", "InvalidMessageContents", entries=[0, 1, 2])
    answer = desk.ask(action="replay", limit=3)
    assert (answer["replayed"], answer["complete"]) == (0, False)
    assert "3 could not be done" in answer["incomplete"]


def test_errors_of_a_hop_are_in_the_last_answer_too(desk):
    desk.put_dead(60)
    desk.bench.sqs.fail_next("delete_message_batch", "ReceiptHandleIsInvalid", entries=[0])
    function = slowly(desk, seconds=0.3)
    first = desk.ask(function, action="replay", rate=100)
    assert first["complete"] is False
    assert first["failed"] == 1
    last = desk.play_hops(function)
    assert last["failed"] == 1
    assert "not deleted" in last["errors"][0]["error"]


def test_a_scan_ends_although_jobs_go_on_dying(desk, monkeypatch):
    desk.put_dead(5)
    receive = desk.bench.sqs.receive_message

    def and_one_more_dies(**request):
        put_letter(desk, "late", failed_at=now(+1.5))
        return receive(**request)

    monkeypatch.setattr(desk.bench.sqs, "receive_message", and_one_more_dies)
    answer = desk.inspect()
    assert (answer["matched"], answer["complete"]) == (5, True)
    assert answer["confirm"]


def test_what_was_sent_after_the_list_is_not_purged(desk):
    desk.bench.dead._clock = desk.bench.clock = time.time
    desk.put_dead(1)
    time.sleep(0.01)
    token = desk.inspect()["confirm"]
    desk.ask(action="replay")
    time.sleep(0.01)
    desk.put_dead(1)
    assert desk.ask(action="purge", confirm=token)["purged"] == 0
    assert len(desk.dead()) == 1


def test_letters_that_come_later_hide_none_that_were_there(desk, monkeypatch):
    """SQS keeps no order: the new ones may come first."""
    random = Random(1)
    for number in range(60):
        put_letter(desk, number)
    late = iter(range(600))
    receive = desk.bench.sqs.receive_message

    def while_jobs_die(**request):
        for number in islice(late, 20):
            put_letter(desk, f"late{number}", failed_at=now(+1.5))
        random.shuffle(desk.bench.dead.messages)
        return receive(**request)

    monkeypatch.setattr(desk.bench.sqs, "receive_message", while_jobs_die)
    answer = desk.ask(action="replay")
    assert (answer["replayed"], answer["complete"]) == (60, True)


def test_a_row_that_is_throttled_for_a_moment_ends_no_run(desk, monkeypatch):
    desk.put_dead(30)
    put_item, left = desk.bench.dynamodb.put_item, [1]

    def throttled_once(**request):
        if request["Item"]["record"]["S"].startswith("run#") and desk.bench.sqs.calls and left[0]:
            left[0] -= 1
            raise aws_error("ThrottlingException")
        return put_item(**request)

    function = desk.function()
    receive = desk.bench.sqs.receive_message

    def from_now_on(**request):
        monkeypatch.setattr(desk.bench.dynamodb, "put_item", throttled_once)
        return receive(**request)

    monkeypatch.setattr(desk.bench.sqs, "receive_message", from_now_on)
    answer = desk.ask(function, action="replay", limit=20)
    assert (answer["replayed"], answer["complete"], left) == (20, True, [0])


def test_ids_that_are_not_there_are_named(desk):
    desk.die("a", "b")
    answer = desk.inspect(ids=["a", "work:b", "nobody"])
    assert (answer["matched"], answer["not_found"]) == (2, ["nobody"])
    assert "not_found" not in desk.inspect()


def test_a_dry_run_says_how_many_would_go(desk):
    desk.die("a", "b", "c")
    desk.bench.send({"id": "a"})
    desk.run()
    assert desk.ask(action="replay", dry_run=True)["would_replay"] == 2
    assert desk.ask(action="replay", dry_run=True, limit=1)["would_replay"] == 1
    assert desk.ask(action="replay", dry_run=True, force=True)["would_replay"] == 3


@pytest.mark.parametrize(("rate", "batch"), [(0.1, 1), (1.5, 1), (3.3, 3), (50, 10), (None, 10)])
def test_a_slow_rate_sends_fewer_at_once(rate, batch):
    assert Pace(rate).batch == batch

"""One run at a time, through as many invocations as it takes, and what is left of it."""

import json
from datetime import timedelta

import pytest

from redrive import PermanentError
from redrive.testing import ManualClock, aws_error, lambda_context
from replay.errors import NoSuchRun, RunUnderWay
from replay.event import ACTIONS
from replay.halt import Halt
from replay.pace import Pace
from tests.functions.replay.test_replay import put_letter
from tests.redrive.worker.conftest import Died, Life


def lock_of(desk):
    key = {"id": {"S": "replay:work"}, "record": {"S": "lock"}}
    return key, desk.bench.dynamodb.get_item(TableName="jobs", Key=key).get("Item")


def let_lock_lapse(desk):
    _, lock = lock_of(desk)
    if lock:
        desk.bench.dynamodb.put_item(TableName="jobs", Item=lock | {"until": {"N": "0"}})


def run_rows(desk):
    return [row for row in desk.bench.rows("jobs") if row["record"]["S"].startswith("run#")]


# --- one at a time --------------------------------------------------------------------------------


def another_run_has_it(desk):
    """A run that is under way, in another process."""
    runs = desk.function()._build().runs
    return runs.begin("work", {"job": "work", "action": "replay", "reason": "first"})


@pytest.mark.parametrize(
    "event", [{"action": "replay"}, {"action": "list"}, {"action": "replay", "dry_run": True}]
)
def test_a_second_run_is_refused_with_the_firsts_id(desk, event):
    desk.die("a")
    first = another_run_has_it(desk)
    with pytest.raises(RunUnderWay, match=first.id):
        desk.ask(**event)
    with pytest.raises(RunUnderWay, match="status"):
        desk.inspect()
    assert desk.dead() == ["a"]


def test_a_run_that_was_killed_keeps_others_out_for_a_lease_and_no_longer(desk):
    desk.die("a")
    another_run_has_it(desk)
    let_lock_lapse(desk)
    assert desk.ask(action="replay")["replayed"] == 1


def test_a_run_that_has_ended_keeps_nobody_out(desk):
    desk.die("a", "b")
    first = desk.ask(action="replay", ids=["a"])
    second = desk.ask(action="replay")
    assert second["replayed"] == 1
    assert first["run"] != second["run"]


def test_a_refused_event_leaves_no_run_behind(desk):
    desk.die("a")
    from replay.errors import Refused

    with pytest.raises(Refused):
        desk.ask(action="purge")
    assert run_rows(desk) == []
    assert desk.ask(action="replay")["replayed"] == 1


def test_a_run_whose_lock_another_has_taken_stops(desk, monkeypatch):
    desk.put_dead(100)
    function = desk.function(lease_seconds=0.03)

    def steal(**request):
        _, lock = lock_of(desk)
        thief = lock | {"run": {"S": "thief"}, "until": {"N": str(10**15)}}
        desk.bench.dynamodb.put_item(TableName="jobs", Item=thief)
        return type(desk.bench.sqs).receive_message(desk.bench.sqs, **request)

    monkeypatch.setattr(desk.bench.sqs, "receive_message", steal)
    answer = desk.ask(function, action="replay", rate=1)
    assert "thief" in answer["incomplete"]
    assert lock_of(desk)[1]["run"] == {"S": "thief"}  # and it keeps it


# --- killed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls_until_death", range(24))
def test_a_kill_before_any_call_loses_nothing_and_doubles_nothing(desk, calls_until_death):
    desk.die(*range(23))
    life = Life()
    life.calls_left = calls_until_death
    killed = desk.function(
        sqs=life.client(desk.bench.sqs), dynamodb=life.client(desk.bench.dynamodb)
    )
    try:
        desk.ask(killed, action="replay")
        assert calls_until_death > 12, "nothing was left to be killed"
    except Died:
        pass
    assert set(desk.waiting()) | set(desk.dead()) == set(range(23))
    desk.bench.clock.advance(timedelta(minutes=2))  # what it held is back
    assert desk.hidden() == 0
    let_lock_lapse(desk)
    answer = desk.ask(action="replay")
    assert answer["complete"]
    desk.bench.runs.clear()
    desk.run()
    assert sorted(map(int, desk.bench.ids_run())) == list(range(23))
    assert desk.dead() == desk.waiting() == []


def test_the_status_of_a_killed_run_says_so(desk):
    desk.die("a")
    run = another_run_has_it(desk)
    assert desk.inspect(action="status", run=run.id)["incomplete"] == "running"
    let_lock_lapse(desk)
    assert "killed" in desk.inspect(action="status", run=run.id)["incomplete"]


# --- hops -----------------------------------------------------------------------------------------


def slowly(desk, seconds=0.15):
    """A function whose first answers come before it is done."""
    return desk.function(seconds_to_work=seconds)


def test_what_is_not_done_in_time_goes_on_by_itself_and_adds_up(desk):
    desk.put_dead(60)
    function = slowly(desk)
    answer = desk.ask(function, action="replay", rate=100)
    assert 0 < answer["replayed"] < 60
    assert answer["complete"] is False
    assert answer["run"] in answer["incomplete"]
    assert desk.hidden() == 0
    status = desk.inspect(action="status")
    assert (status["run"], status["replayed"]) == (answer["run"], answer["replayed"])
    assert status["incomplete"] == "running"
    last = desk.play_hops(function)
    assert (last["scanned"], last["matched"], last["replayed"]) == (60, 60, 60)
    assert (last["complete"], last["run"]) == (True, answer["run"])
    (cause,) = last["causes"]
    assert cause["count"] == 60
    assert sorted(desk.waiting()) == list(range(60))
    told = {message["message_id"] for message in last["messages"]}
    assert len(told) == len(last["messages"]) == 60
    assert desk.inspect(action="status") | {"started_at": 0, "updated_at": 0} == last | {
        "started_at": 0,
        "updated_at": 0,
    }


def test_the_lock_is_kept_between_two_hops(desk):
    desk.put_dead(60)
    desk.ask(slowly(desk), action="replay", rate=100)
    with pytest.raises(RunUnderWay):
        desk.ask(action="replay")


def test_an_event_that_lambda_delivers_twice_is_done_once(desk):
    desk.put_dead(60)
    function = slowly(desk)
    desk.ask(function, action="replay", rate=100)
    (event,) = desk.invoked.events
    context = lambda_context(timedelta(minutes=15))
    assert function(event, context)["complete"]
    calls = len(desk.bench.sqs.calls)
    assert "done" in function(event, context)["incomplete"]
    assert len(desk.bench.sqs.calls) == calls


def test_a_limit_holds_over_all_hops(desk):
    desk.put_dead(60)
    function = slowly(desk)
    first = desk.ask(function, action="replay", rate=100, limit=40)
    assert first["complete"] is False
    last = desk.play_hops(function)
    assert (last["replayed"], len(desk.waiting()), len(desk.dead())) == (40, 40, 20)


def test_a_purge_that_takes_long_goes_on_with_what_was_confirmed(desk):
    desk.put_dead(60)
    token = desk.inspect()["confirm"]
    function = slowly(desk, seconds=0)
    answer = desk.ask(function, action="purge", confirm=token)
    assert (answer["purged"], answer["complete"]) == (0, False)
    last = desk.play_hops(function)
    assert (last["purged"], last["complete"]) == (60, True)
    assert desk.dead() == []


def test_a_run_that_cannot_go_on_says_so_and_gives_the_queue_back(desk, monkeypatch):
    desk.put_dead(60)

    def denied(**request):
        raise aws_error("AccessDeniedException")

    monkeypatch.setattr(desk.invoked, "invoke", denied)
    answer = desk.ask(slowly(desk), action="replay", rate=100)
    assert answer["incomplete"] == "it cannot go on: AccessDeniedException"
    assert desk.ask(action="replay")["complete"]


def test_a_run_does_not_go_on_for_ever(desk, monkeypatch):
    monkeypatch.setattr("replay.hop.MOST_HOPS", 3)
    desk.put_dead(60)
    function = slowly(desk, seconds=0)
    desk.ask(function, action="replay")
    for _ in range(2):
        # A hop that has no time: its invocation is nearly over when it begins.
        answer = function(desk.invoked.events.pop(0), lambda_context(timedelta(seconds=1)))
    assert desk.invoked.events == []
    assert "time" in answer["incomplete"]
    assert desk.ask(action="replay")["replayed"] == 60


def test_a_list_that_takes_long_answers_with_what_it_has_seen(desk):
    desk.put_dead(60)
    answer = desk.inspect_within = desk.ask(desk.function(seconds_to_work=0))
    assert (answer["complete"], answer["confirm"]) == (False, None)
    assert "time" in answer["incomplete"]
    assert desk.invoked.events == []


# --- canary ---------------------------------------------------------------------------------------


def with_canary(desk, error=None, **event):
    """Replays with a canary of five, while a worker runs what is sent."""
    import threading

    ended = threading.Event()

    def work():
        while not ended.is_set():
            desk.run(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        function = desk.function()
        answer = desk.ask(function, action="replay", canary=5, **event)
        return desk.play_hops(function) or answer
    finally:
        ended.set()
        worker.join()


def test_after_a_canary_that_lives_all_the_rest_goes(desk):
    desk.die(*range(30))
    answer = with_canary(desk)
    assert (answer["replayed"], answer["complete"]) == (30, True)
    assert (answer["scanned"], answer["matched"]) == (30, 30)


def test_a_canary_that_dies_stops_the_run(desk):
    desk.die(*range(30))
    answer = with_canary(desk, PermanentError("still"))
    assert answer["replayed"] == 5
    assert answer["incomplete"].startswith("canary: work:")
    assert "PermanentError" in answer["incomplete"]
    assert len(desk.dead()) == 30


def test_one_failed_attempt_of_a_canary_is_enough(desk):
    desk.die(*range(30))
    answer = with_canary(desk, ValueError("a moment"))
    assert answer["replayed"] == 5
    assert "ValueError" in answer["incomplete"]
    assert len(desk.dead()) == 25


def test_a_canary_is_waited_for_over_hops(desk):
    desk.die(*range(30))
    function = slowly(desk, seconds=0.3)
    answer = desk.ask(function, action="replay", canary=5)
    assert (answer["replayed"], answer["complete"]) == (5, False)
    desk.run()
    last = desk.play_hops(function)
    assert (last["replayed"], last["complete"]) == (30, True)


def test_a_canary_counts_in_the_limit(desk):
    desk.die(*range(30))
    assert with_canary(desk, limit=12)["replayed"] == 12
    assert with_canary(desk, limit=3)["replayed"] == 3


def test_a_canary_that_is_never_run_is_not_waited_for_for_ever(desk, monkeypatch):
    monkeypatch.setattr("replay.canary.PATIENCE_SECONDS", 0)
    desk.die(*range(30))
    answer = desk.ask(action="replay", canary=5)
    assert "5 of 5" in answer["incomplete"]
    assert answer["replayed"] == 5


# --- pace -----------------------------------------------------------------------------------------


class NoWait(Halt):
    """Moves the clock instead of waiting."""

    def __init__(self, clock):
        super().__init__(1000)
        self.clock = clock

    def wait(self, seconds):
        self.clock.advance(timedelta(seconds=max(seconds, 0)))
        return False


@pytest.mark.parametrize("rate", [0.5, 1, 1.5, 3.3, 50, 333, 5000])
def test_a_rate_holds_within_a_tenth_over_ten_seconds(rate):
    clock = ManualClock()
    pace, halt = Pace(rate, clock=clock), NoWait(clock)
    start, sent = clock(), 0
    while clock() < start + 10:
        assert pace.take(pace.batch, halt)
        if clock() < start + 10:
            sent += pace.batch
    assert abs(sent - 10 * rate) <= max(rate, 1)


def test_a_pause_is_not_made_up_for_by_a_burst():
    clock = ManualClock()
    pace, halt = Pace(10, clock=clock), NoWait(clock)
    pace.take(10, halt)
    clock.advance(timedelta(seconds=100))
    start = clock()
    for _ in range(3):
        pace.take(10, halt)
    assert clock() - start == pytest.approx(2)


# --- what is left of a run ------------------------------------------------------------------------


def test_a_run_is_one_row_that_says_what_why_and_how_many(desk):
    put_letter(desk, "a", payload={"card": "4111 1111"})
    answer = desk.ask(action="replay", cause="Throttled", show_payload=True)
    (row,) = run_rows(desk)
    assert row["record"]["S"] == f"run#{answer['run']}"
    assert (row["action"]["S"], row["reason"]["S"]) == ("replay", "a test")
    assert json.loads(row["event"]["S"])["cause"] == "Throttled"
    assert json.loads(row["answer"]["S"])["replayed"] == 1
    assert row["started_at"]["S"] <= row["updated_at"]["S"]
    assert int(row["expiration"]["N"]) > 0
    assert "4111" not in json.dumps(row)
    assert "4111" in json.dumps(answer)


def test_a_run_is_one_line_and_three_counters(desk, capsys):
    desk.die("a", "b", card="4111 1111")
    desk.bench.sqs.fail_next("send_message_batch", "InvalidMessageContents", entries=[1])
    capsys.readouterr()
    answer = desk.ask(action="replay")
    printed = capsys.readouterr().out
    assert "4111" not in printed
    lines = [json.loads(line) for line in printed.splitlines()]
    (line,) = [one for one in lines if one.get("message") == "replay run"]
    assert (line["run"], line["job"], line["replayed"]) == (answer["run"], "work", 1)
    assert line["event"]["reason"] == "a test"
    (metrics,) = [one for one in lines if "_aws" in one]
    assert (metrics["stage"], metrics["job"]) == ("test", "work")
    assert [metrics[name] for name in ("Replayed", "Purged", "ReplayFailed")] == [[1], [0], [1]]


def test_a_fault_of_ours_ends_the_run_and_says_so(desk, monkeypatch):
    desk.die("a")
    monkeypatch.setattr("replay.sweep.asked_about", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        desk.ask(action="replay")
    monkeypatch.undo()
    assert desk.hidden() == 0
    status = desk.inspect(action="status")
    assert status["incomplete"] == "failed: ZeroDivisionError"
    assert desk.ask(action="replay")["replayed"] == 1


@pytest.mark.parametrize("run", [None, "20260101T000000-abcdef"])
def test_a_run_that_never_was_has_no_status(desk, run):
    with pytest.raises(NoSuchRun):
        desk.inspect(action="status", run=run)


def test_the_functions_take_what_they_are_for():
    from replay import handler

    assert handler.replay._actions == ACTIONS
    assert handler.inspect._actions == ("list", "status")

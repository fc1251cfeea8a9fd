"""Messages that come again: what the tables know of them, and who must run alone."""

import json
import threading
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from redrive import PermanentError
from redrive.testing import lambda_context
from redrive.worker.idempotency import record_id
from redrive.worker.jobs_table import Asked, JobsTable


def row_of(bench):
    (row,) = bench.rows("jobs")
    return row


def test_an_attempt_is_a_run_that_failed_and_not_a_receive(bench):
    bench.send({"id": "a"})
    for _ in range(5):  # somebody looks at the queue in the console
        bench.queue.receive()
        bench.clock.advance(timedelta(minutes=6))
    worker = bench.worker(lambda job: 1 / 0)
    bench.deliver_until_settled(worker)
    assert [job.attempt for job in bench.runs] == [1, 2, 3]
    cause = bench.causes()['{"id": "a"}']
    assert (cause["attempts"], cause["receives"]) == (3, 8)


def test_a_failed_attempt_is_in_the_table_with_its_cause(bench):
    bench.send({"id": "a"})
    bench.deliver(bench.worker(lambda job: 1 / 0))
    row = row_of(bench)
    assert row["attempts"] == {"N": "1"}
    assert json.loads(row["cause"]["S"])["type"] == "ZeroDivisionError"
    assert "dead" not in row
    assert int(row["expiration"]["N"]) > 0


def test_a_job_that_succeeds_at_once_has_no_row_and_costs_no_read(bench, dynamodb, monkeypatch):
    monkeypatch.setattr(dynamodb, "batch_get_item", lambda **_: pytest.fail("a read"))
    bench.send({"id": "a"})
    bench.deliver(bench.worker())
    assert bench.rows("jobs") == []


def test_redelivered_messages_are_read_fifty_to_a_call(bench, dynamodb, monkeypatch):
    for number in range(60):
        bench.send({"id": number})
    worker = bench.worker(lambda job: 1 / 0)
    bench.deliver(worker, batch_size=60)
    bench.clock.advance(timedelta(hours=1))
    batch_get_item, sizes = dynamodb.batch_get_item, []

    def counted(**request):
        sizes.append(sum(len(table["Keys"]) for table in request["RequestItems"].values()))
        return batch_get_item(**request)

    monkeypatch.setattr(dynamodb, "batch_get_item", counted)
    bench.deliver(worker, batch_size=60)
    assert sizes == [100, 20]
    assert {job.attempt for job in bench.runs[60:]} == {2}


def test_what_was_written_a_moment_ago_is_read(bench, dynamodb, monkeypatch):
    batch_get_item, consistent = dynamodb.batch_get_item, []

    def noted(RequestItems):  # noqa: N803
        consistent.extend(of_table["ConsistentRead"] for of_table in RequestItems.values())
        return batch_get_item(RequestItems=RequestItems)

    bench.send({"id": "a"})
    worker = bench.worker(lambda job: 1 / 0 if job.attempt == 1 else None)
    monkeypatch.setattr(dynamodb, "batch_get_item", noted)
    bench.deliver_until_settled(worker)
    assert consistent == [True, True]  # of both tables, for the second attempt


def test_what_dynamodb_is_too_busy_to_read_is_asked_for_again(bench, dynamodb, monkeypatch):
    monkeypatch.setattr("redrive.worker.jobs_table._PAUSE_SECONDS", 0)
    bench.send({"id": "a"})
    worker = bench.worker(lambda job: 1 / 0)
    bench.deliver(worker)
    bench.clock.advance(timedelta(hours=1))
    batch_get_item, calls = dynamodb.batch_get_item, []

    def busy_at_first(RequestItems):  # noqa: N803
        calls.append(RequestItems)
        if len(calls) == 1:
            return {"Responses": {}, "UnprocessedKeys": RequestItems}
        return batch_get_item(RequestItems=RequestItems)

    monkeypatch.setattr(dynamodb, "batch_get_item", busy_at_first)
    bench.deliver(worker)
    assert [job.attempt for job in bench.runs] == [1, 2]


@pytest.mark.parametrize("trouble", ["denied", "busy", "jobs", "idempotency"])
def test_a_message_whose_history_is_unknown_is_handed_back_and_uses_no_attempt(
    bench, dynamodb, monkeypatch, trouble, lines
):
    monkeypatch.setattr("redrive.worker.jobs_table._PAUSE_SECONDS", 0)
    bench.send({"id": "a"})
    worker = bench.worker(lambda job: 1 / 0)
    bench.deliver(worker)
    bench.clock.advance(timedelta(hours=1))

    def refuse(RequestItems):  # noqa: N803
        if trouble != "denied":  # by all keys, or by those of one table
            unread = {
                table: RequestItems[table] for table in RequestItems if trouble in (table, "busy")
            }
            return {"Responses": {}, "UnprocessedKeys": unread}
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchGetItem")

    with monkeypatch.context() as denied:
        denied.setattr(dynamodb, "batch_get_item", refuse)
        bench.deliver(worker)
    assert len(bench.runs) == 1
    assert "HistoryUnknown" in [line.get("reason") for line in lines()]
    bench.deliver_until_settled(worker)
    assert [job.attempt for job in bench.runs] == [1, 2, 3]


def test_an_attempt_that_cannot_be_written_is_told_and_the_job_is_still_retried(
    bench, dynamodb, monkeypatch, lines
):
    update_item = dynamodb.update_item

    def refuse(**request):
        if request["TableName"] == "jobs":
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateItem")
        return update_item(**request)

    monkeypatch.setattr(dynamodb, "update_item", refuse)
    bench.send({"id": "a"})
    worker = bench.worker(lambda job: 1 / 0 if len(bench.runs) < 3 else None)
    bench.deliver_until_settled(worker)
    assert len(bench.runs) == 3
    assert len(bench.dead) == 0
    assert "jobs table failed" in [line.get("message") for line in lines()]


def test_an_attempt_that_botocore_writes_twice_is_counted_once(bench, dynamodb, monkeypatch):
    update_item = dynamodb.update_item

    def repeated(**request):
        if request["TableName"] == "jobs":
            update_item(**request)
        return update_item(**request)

    monkeypatch.setattr(dynamodb, "update_item", repeated)
    bench.send({"id": "a"})
    bench.deliver_until_settled(bench.worker(lambda job: 1 / 0))
    assert [job.attempt for job in bench.runs] == [1, 2, 3]


def test_a_dead_message_whose_delete_was_lost_is_acknowledged_unrun(bench):
    def die(job):
        raise PermanentError

    bench.send({"id": "a"})
    (message,) = bench.queue.messages
    bench.deliver(bench.worker(die))
    bench.queue.messages.append(message)
    bench.clock.advance(timedelta(hours=1))
    assert len(bench.deliver(bench.worker(die)).deleted) == 1
    assert len(bench.runs) == len(bench.dead) == 1


def test_a_replayed_message_starts_at_no_attempts(bench):
    worker = bench.worker(lambda job: 1 / 0)
    for _ in range(2):
        bench.send({"id": "a"})
        bench.deliver_until_settled(worker)
    assert [job.attempt for job in bench.runs] == [1, 2, 3, 1, 2, 3]


def test_an_old_message_is_dead_lettered_as_expiring(bench):
    bench.send({"id": "a"})
    bench.clock.advance(timedelta(hours=85))
    bench.deliver(bench.worker(lambda job: 1 / 0))
    assert bench.causes()['{"id": "a"}']["type"] == "Expiring"


# --- kills ----------------------------------------------------------------------------------------


def test_a_killed_run_is_taken_over_and_the_job_is_done(bench, lines):
    bench.send({"id": "a"})
    bench.kill_during("a")
    assert bench.rows("idempotency")[0]["status"] == {"S": "INPROGRESS"}
    bench.pass_time(timedelta(minutes=6))
    assert len(bench.deliver(bench.worker()).deleted) == 1
    assert bench.ids_run() == ["a", "a"]
    assert [job.attempt for job in bench.runs] == [1, 1]  # a kill is not an attempt
    (killed,) = [line for line in lines() if line.get("message") == "run was killed"]
    assert killed["kills"] == 1
    assert killed["killed_request_id"]


def test_a_job_that_always_kills_dies_as_killed_with_the_trace_of_its_last_run(bench):
    bench.send({"id": "a"})
    contexts = [lambda_context() for _ in range(4)]
    for context in contexts[:3]:
        bench.kill_during("a", context=context)
        bench.pass_time(timedelta(minutes=6))
    worker = bench.worker()
    assert len(bench.deliver(worker, context=contexts[3]).deleted) == 1
    assert len(bench.runs) == 3
    cause = bench.causes()['{"id": "a"}']
    assert (cause["type"], cause["attempts"], cause["receives"]) == ("Killed", 0, 4)
    assert cause["request_id"] == contexts[2].aws_request_id
    assert cause["log_stream"] == contexts[2].log_stream_name
    assert bench.rows("idempotency") == []  # a replay starts with no kills


def test_after_a_kill_a_job_runs_alone_and_after_the_others_of_its_batch(bench):
    for id_ in ("innocent", "bad"):
        bench.send({"id": id_})
    bench.kill_during("bad", together=2)
    bench.pass_time(timedelta(minutes=6))
    for id_ in ("new", "newer"):
        bench.send({"id": id_})
    running, most = [0], [0]
    lock = threading.Lock()

    def run(job):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0] if job.key in ("bad", "innocent") else 0)
        with lock:
            running[0] -= 1

    bench.runs.clear()
    bench.deliver(bench.worker(run))
    assert set(bench.ids_run()[:2]) == {"new", "newer"}
    assert set(bench.ids_run()[2:]) == {"bad", "innocent"}
    assert most == [1]


def test_a_job_that_another_message_runs_is_not_suspected_of_this_ones_kill(bench, dynamodb):
    bench.send({"id": "a"})
    bench.kill_during("a")
    killed, record = bench.runs[0].message_id, record_id("work", "a")
    histories = JobsTable("jobs", "idempotency", dynamodb).read(
        [Asked("work:a", killed, record), Asked("work:a", "another message", record)]
    )
    assert histories[killed].unfinished_kills == 0
    assert histories["another message"].unfinished_kills is None


@pytest.mark.parametrize("place", [0, 4, 9])
def test_one_poison_pill_in_ten_kills_itself_alone_and_nine_are_done_once(bench, place):
    done = []

    def run(job):
        if job.key == "bad":
            bench.life.end()
        done.append(job.key)

    for number in range(10):
        bench.send({"id": "bad" if number == place else number})
    bench.kill_during("bad", together=10)
    deliveries = 1
    while len(bench.queue):
        bench.pass_time(timedelta(minutes=6))
        bench.deliver_mortal(bench.worker(run))
        deliveries += 1
    assert sorted(done) == [str(number) for number in range(10) if number != place]
    assert bench.causes()['{"id": "bad"}']["type"] == "Killed"
    assert deliveries == 4  # three runs that it killed, and the one that found it out


def test_a_run_that_comes_back_from_a_freeze_undoes_nothing_and_acknowledges_nothing(bench, lines):
    frozen, thaw = threading.Event(), threading.Event()

    def freeze(job):
        frozen.set()
        assert thaw.wait(20)

    bench.send({"id": "a"})
    answers = []
    first = threading.Thread(target=lambda: answers.append(bench.deliver(bench.worker(freeze))))
    first.start()
    assert frozen.wait(20)
    bench.pass_time(timedelta(minutes=6))
    assert len(bench.deliver(bench.worker(lambda job: "successor")).deleted) == 1
    (finished,) = bench.rows("idempotency")
    thaw.set()
    first.join()
    assert answers[0].deleted == ()
    assert bench.rows("idempotency") == [finished]
    assert [line["LeaseLost"] for line in lines() if "LeaseLost" in line] == [[1.0]]


def test_a_permanent_error_of_a_run_that_lost_its_lease_is_not_dead_lettered(bench):
    frozen, thaw = threading.Event(), threading.Event()

    def freeze(job):
        frozen.set()
        assert thaw.wait(20)
        raise PermanentError

    bench.send({"id": "a"})
    first = threading.Thread(target=bench.deliver, args=[bench.worker(freeze)])
    first.start()
    assert frozen.wait(20)
    bench.pass_time(timedelta(minutes=6))
    bench.deliver(bench.worker())
    thaw.set()
    first.join()
    assert len(bench.dead) == 0
    assert bench.rows("jobs") == []

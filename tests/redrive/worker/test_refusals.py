"""What AWS refuses, answers too late, or is asked twice: nothing is lost, and no kill is
invented.
"""

import json
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from redrive import ContinueLater, PermanentError
from redrive.message import Cause
from redrive.testing import InMemorySqs
from redrive.worker.jobs_table import Asked, JobsTable

LEASE = 0.9
CAUSE = Cause(
    type="A",
    message="",
    fingerprint="",
    attempts=1,
    receives=1,
    failed_at="",
    function="",
    request_id="",
    log_stream="",
)


def refuse(code="AccessDenied"):
    def call(**request):
        raise ClientError({"Error": {"Code": code}}, "Refused")

    return call


def fail(job):
    raise RuntimeError


def fail_for_good(job):
    raise PermanentError


# --- a dead letter that is refused ----------------------------------------------------------------


def too_old(bench):
    bench.clock.advance(timedelta(hours=90))
    return {}


def received_too_often(bench):
    return {"contract": replace(bench.settings.contract, max_receives=1)}


@pytest.mark.parametrize("near_its_end", [too_old, received_too_often])
@pytest.mark.parametrize("function", [fail, fail_for_good])
def test_a_message_near_its_end_stays_in_its_queue_while_its_dead_letter_is_refused(
    bench, monkeypatch, near_its_end, function
):
    bench.send({"id": "a"})
    monkeypatch.setattr(bench.sqs, "send_message", refuse())
    worker = bench.worker(function, **near_its_end(bench))
    assert bench.deliver(worker).deleted == ()
    assert len(bench.queue) == 1


def test_a_fault_of_the_worker_loses_no_old_message(bench, monkeypatch):
    bench.send({"id": "a"})
    too_old(bench)
    monkeypatch.setattr("redrive.worker.batch_run.cause_of", lambda *_, **__: 1 / 0)
    bench.deliver(bench.worker(fail))
    assert len(bench.queue) == 1


def test_a_group_near_its_end_stays_in_its_queue_while_its_dead_letters_are_refused(
    fifo_bench, monkeypatch
):
    for id_ in "12":
        fifo_bench.send({"id": id_}, MessageGroupId="G", MessageDeduplicationId=id_)
    too_old(fifo_bench)
    monkeypatch.setattr(fifo_bench.sqs, "send_message", refuse())
    fifo_bench.deliver(fifo_bench.worker(fail))
    assert len(fifo_bench.queue) == 2


def test_a_fault_of_the_worker_in_a_group_fails_no_batch(fifo_bench, monkeypatch):
    for id_ in "12":
        fifo_bench.send({"id": id_}, MessageGroupId="G", MessageDeduplicationId=id_)
    too_old(fifo_bench)
    monkeypatch.setattr("redrive.worker.batch_run.cause_of", lambda *_, **__: 1 / 0)
    assert fifo_bench.deliver(fifo_bench.worker(fail)).error is None
    assert len(fifo_bench.queue) == 2


def test_a_killed_job_whose_dead_letter_was_refused_leaves_no_claim(bench, monkeypatch):
    bench.send({"id": "a"})
    for _ in range(3):
        bench.kill_during("a")
        bench.pass_time(timedelta(hours=1))
    with monkeypatch.context() as refused:
        refused.setattr(bench.sqs, "send_message", refuse())
        bench.deliver(bench.worker())
    bench.deliver_until_settled(bench.worker())
    assert bench.causes()['{"id": "a"}']["type"] == "Killed"
    assert bench.rows("idempotency") == []


# --- kills that were none, and kills in turn ------------------------------------------------------


def test_a_claim_that_could_not_be_removed_after_a_failure_is_no_kill(
    bench, dynamodb, monkeypatch, lines
):
    monkeypatch.setattr(dynamodb, "delete_item", refuse())
    bench.send({"id": "a"})
    policy = replace(bench.settings.contract.retry, max_attempts=6)
    contract = replace(bench.settings.contract, retry=policy)
    bench.deliver_until_settled(bench.worker(fail, contract=contract))
    cause = bench.causes()['{"id": "a"}']
    assert (cause["type"], cause["attempts"]) == ("RuntimeError", 6)
    assert "run was killed" not in [line.get("message") for line in lines()]


def kill_in_turn(bench, messages):
    """Sends one job so many times, and kills each run until nothing is left; how often it did."""
    for _ in range(messages):
        bench.send({"id": "a"})
    kills = 0
    while len(bench.queue):
        try:
            bench.kill_during("a", batch_size=1)
            kills += 1
        except AssertionError:  # it was not run
            pass
        bench.pass_time(timedelta(minutes=3.5))
        assert kills <= 3 * messages
    return kills


def test_two_messages_of_one_job_that_are_killed_in_turn_end_as_killed(bench):
    assert kill_in_turn(bench, 2) == 6
    assert bench.rows("idempotency") == []
    causes = [
        json.loads(one["MessageAttributes"]["redrive"]["StringValue"])["cause"]
        for one in bench.dead_letters()
    ]
    assert [cause["type"] for cause in causes] == ["Killed", "Killed"]


def fails_first(monkeypatch, client, operation, times, *, applied=False):
    """The first calls are refused; with `applied` only their answers are lost."""
    make = getattr(client, operation)
    left = [times]

    def call(**request):
        if left[0] and "ConditionExpression" in request:  # else it is the test's own
            left[0] -= 1
            if applied:
                make(**request)
            refuse("ThrottlingException")()
        return make(**request)

    monkeypatch.setattr(client, operation, call)


def test_a_job_that_goes_on_is_not_killed_by_claims_that_could_not_be_removed(
    bench, dynamodb, monkeypatch, lines
):
    fails_first(monkeypatch, dynamodb, "delete_item", 3)
    bench.send({"id": "a"})

    def step(job):
        if len(bench.runs) < 6:
            raise ContinueLater

    bench.deliver_until_settled(bench.worker(step))
    assert len(bench.runs) == 6
    assert len(bench.dead) == 0
    assert "run was killed" not in [line.get("message") for line in lines()]


def test_a_claim_whose_answer_was_lost_is_no_run_that_was_killed(
    bench, dynamodb, monkeypatch, lines
):
    bench.group_commit = False
    fails_first(monkeypatch, dynamodb, "put_item", 3, applied=True)
    bench.send({"id": "a"})
    bench.deliver_until_settled(bench.worker())
    assert len(bench.runs) == 1
    assert len(bench.dead) == 0
    assert "run was killed" not in [line.get("message") for line in lines()]


def test_an_end_that_could_not_be_told_is_told_again(bench, dynamodb, monkeypatch):
    monkeypatch.setattr(dynamodb, "delete_item", refuse())
    fails_first(monkeypatch, dynamodb, "update_item", 2)
    monkeypatch.setattr("redrive.worker.idempotency._SAVE_AGAIN_SECONDS", 0)
    bench.send({"id": "a"})
    bench.deliver(bench.worker(fail))
    assert bench.rows("idempotency")[0]["ended"] == {"BOOL": True}


def test_a_claim_that_ended_is_nobodys_kill_and_makes_nobody_a_suspect(
    bench, dynamodb, monkeypatch
):
    monkeypatch.setattr(dynamodb, "delete_item", refuse())
    for _ in range(2):
        bench.send({"id": "a"})
    bench.deliver(bench.worker(fail), batch_size=1)
    bench.pass_time(timedelta(hours=1))
    (record,) = bench.rows("idempotency")
    histories = JobsTable("jobs", "idempotency", dynamodb).read(
        [Asked("work:a", record["message_id"]["S"], record["id"]["S"])]
    )
    assert histories[record["message_id"]["S"]].unfinished_kills is None
    bench.deliver(bench.worker())
    assert bench.rows("idempotency")[0]["status"] == {"S": "COMPLETED"}
    assert len(bench.dead) == 0


def test_ten_messages_of_one_job_that_all_kill_are_killed_three_times_each(bench):
    assert kill_in_turn(bench, 10) == 30


def test_a_second_death_does_not_overwrite_the_first_ones_cause(table, dynamodb):
    for type_ in ("A", "B"):
        table.mark_dead("work:a", "m", replace(CAUSE, type=type_), replays=0, force=0)
    (row,) = dynamodb.scan(TableName="jobs")["Items"]
    assert json.loads(row["cause"]["S"])["type"] == "A"


def answer_is_lost(monkeypatch, client, operation, applies=lambda request: True):
    """The call is made, its answer comes too late, and botocore makes it again."""
    make = getattr(client, operation)
    lost = []

    def call(**request):
        answer = make(**request)
        if lost or not applies(request):
            return answer
        lost.append(operation)
        try:
            return make(**request)
        except ClientError as error:
            error.response.setdefault("ResponseMetadata", {})["RetryAttempts"] = 1
            raise

    monkeypatch.setattr(client, operation, call)


def test_a_delete_that_botocore_repeats_is_no_lost_lease(bench, dynamodb, monkeypatch):
    answer_is_lost(monkeypatch, dynamodb, "delete_item")
    bench.send({"id": "a"})
    bench.deliver(bench.worker(fail_for_good))
    assert len(bench.dead) == 1


def test_a_take_over_that_botocore_repeats_still_counts_the_kills(bench, dynamodb, monkeypatch):
    bench.send({"id": "a"})
    for _ in range(3):
        bench.kill_during("a")
        bench.pass_time(timedelta(hours=1))

    def takes_over(request):
        return ":until" in request.get("ExpressionAttributeValues", {})

    answer_is_lost(monkeypatch, dynamodb, "put_item", takes_over)
    bench.deliver(bench.worker())
    assert len(bench.runs) == 3
    assert bench.causes()['{"id": "a"}']["type"] == "Killed"


def test_after_a_kill_the_worst_suspect_runs_last(bench):
    for id_ in ("worst", "innocent"):
        bench.send({"id": id_})
    bench.kill_during("worst", together=2)
    bench.pass_time(timedelta(minutes=6))

    def kill_again(job):
        if job.key == "worst":
            bench.life.end()
        raise AssertionError("the innocent one came first")

    assert bench.deliver_mortal(bench.worker(kill_again)) is None  # both at no kill: in order
    bench.pass_time(timedelta(minutes=6))
    bench.runs.clear()
    bench.deliver(bench.worker())
    assert bench.ids_run() == ["innocent", "worst"]


# --- leases that cannot be renewed ----------------------------------------------------------------


class Misses(InMemorySqs):
    """Renews no lease, for a trouble of its own."""

    def change_message_visibility_batch(self, **request):
        failed = [
            {"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"}
            for entry in request["Entries"]
        ]
        return {"Successful": [], "Failed": failed}


def run_beside(bench, bodies, *, concurrency, seconds):
    """A batch by a worker whose leases SQS does not renew; in it another message of job b comes.

    Returns how many runs of b there were at the same time.
    """
    running, most, b_runs = [0], [0], threading.Event()

    def run(job):
        if job.key != "b":
            time.sleep(1.5 * LEASE)
            return
        running[0] += 1
        most[0] = max(most[0], running[0])
        b_runs.set()
        time.sleep(seconds)
        running[0] -= 1

    for body in bodies:
        bench.send(body)
    other = bench.worker(run, lease_seconds=LEASE)
    bench.sqs = Misses(bench.queue, bench.dead)
    worker = bench.worker(run, lease_seconds=LEASE, batch_concurrency=concurrency)
    first = threading.Thread(target=bench.deliver, args=[worker])
    first.start()
    if concurrency > 1:
        assert b_runs.wait(20)
        time.sleep(1.5 * LEASE)  # past the lease that the claim began with
    else:
        first.join()
    bench.send({"id": "b"})
    bench.deliver(other)
    first.join()
    return most[0]


def test_a_live_run_is_not_taken_over_where_sqs_renews_no_lease(bench):
    assert run_beside(bench, [{"id": "b"}], concurrency=2, seconds=3 * LEASE) == 1


# --- rows and keys --------------------------------------------------------------------------------


@pytest.fixture
def table(dynamodb):
    return JobsTable("jobs", "idempotency", dynamodb)


def test_one_message_twice_in_a_batch_is_read_once(table):
    asked = Asked("work:a", "m", "record")
    assert list(table.read([asked, asked])) == ["m"]


def test_a_row_of_another_version_keeps_its_own_message_back_and_no_other(table, dynamodb):
    row = {
        "id": {"S": "work:a"},
        "record": {"S": "message#m"},
        "dying": {"BOOL": True},
        "cause": {"S": json.dumps({"type": "X", "newer": 1})},
    }
    dynamodb.put_item(TableName="jobs", Item=row)
    assert list(table.read([Asked("work:a", "m", "r"), Asked("work:b", "n", "s")])) == ["n"]


def test_a_dead_message_is_not_marked_as_dying_by_its_other_delivery(table):
    table.mark_dead("work:a", "m", CAUSE, replays=0, force=0)
    table.mark_dying("work:a", "m", CAUSE)
    assert table.read([Asked("work:a", "m", "r")])["m"].dead


def test_a_claim_lasts_as_long_as_the_lease_and_not_as_the_function(bench):
    ends = []

    def run(job):
        (record,) = bench.rows("idempotency")
        ends.append(int(record["in_progress_expiration"]["N"]) / 1000 - time.time())

    bench.send({"id": "a"})
    bench.deliver(bench.worker(run, lease_seconds=20))
    assert 10 < ends[0] <= 20

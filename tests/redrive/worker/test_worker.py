"""What a worker does with a batch, seen from its queue, its dead letters and its tables."""

import json
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from redrive import ContinueLater, PermanentError, RetryLater
from redrive.errors import NotAnSqsEvent, SettingsError
from redrive.testing import lambda_context
from redrive.worker import Worker

ThrottlingError = ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateItem")


def bodies(queue):
    return [message.body for message in queue.messages]


def fail_for(*ids, by=RuntimeError):
    def run(job):
        if job.payload["id"] in ids:
            raise by("told to")

    return run


# --- done, and never again ------------------------------------------------------------------------


def test_a_job_that_returns_is_deleted_and_its_result_remembered(bench):
    bench.send({"id": "a"})
    delivery = bench.deliver(bench.worker(lambda job: {"n": 1}))
    assert delivery.response == {"batchItemFailures": []}
    assert len(bench.queue) == 0
    (record,) = bench.rows("idempotency")
    assert record["status"] == {"S": "COMPLETED"}
    assert json.loads(record["data"]["S"]) == {"result": {"n": 1}}
    assert record["id"]["S"].startswith("work#")  # not the function's name, which may change
    thirty_days = 30 * 24 * 3600
    assert 0 <= time.time() + thirty_days - int(record["expiration"]["N"]) < 60


@pytest.mark.parametrize("result", ["ok", 42, None, {"statusCode": 200}, [1], {}, 0, False])
def test_whatever_a_job_returns_the_worker_answers_with_the_batch_response_alone(bench, result):
    worker = bench.worker(lambda job: result)
    for _ in range(2):
        bench.send({"id": "a"})
        assert bench.deliver(worker).response == {"batchItemFailures": []}
    assert bench.ids_run() == ["a"]


class ChangedUnderWay(dict):
    """What a thread of the job still fills."""

    def items(self):
        raise RuntimeError("dictionary changed size during iteration")


@pytest.mark.parametrize(
    "result",
    [{1, 2}, b"x", object(), float("nan"), "x" * 40_000, ChangedUnderWay(a=1), {1: "a", "b": 2}],
)
def test_a_result_that_cannot_be_stored_never_makes_the_job_run_again(bench, result):
    worker = bench.worker(lambda job: result)
    for _ in range(2):
        bench.send({"id": "a"})
        bench.deliver(worker)
    assert bench.ids_run() == ["a"]
    (record,) = bench.rows("idempotency")
    assert record["status"] == {"S": "COMPLETED"}
    assert json.loads(record["data"]["S"])["omitted"]


def test_a_finished_job_whose_delete_failed_is_acknowledged_and_not_run_again(bench):
    worker = bench.worker()
    bench.send({"id": "a"})
    bench.queue.receive()  # the delete that never came: the message is in flight, and comes back
    bench.send({"id": "a"})
    bench.deliver(worker)
    bench.clock.advance(timedelta(minutes=6))
    bench.deliver(worker)
    assert bench.ids_run() == ["a"]
    assert len(bench.queue) == len(bench.dead) == 0


def test_a_job_whose_record_was_deleted_runs_again_also_in_a_warm_environment(bench, dynamodb):
    worker = bench.worker(batch_concurrency=1)
    for _ in range(2):
        bench.send({"id": "a"})
        bench.deliver(worker)
        (record,) = bench.rows("idempotency")
        dynamodb.delete_item(TableName="idempotency", Key={"id": record["id"]})
    assert bench.ids_run() == ["a", "a"]


def test_two_messages_of_one_job_in_one_batch_run_it_once(bench):
    for _ in range(2):
        bench.send({"id": "a"})
    delivery = bench.deliver(bench.worker())
    assert bench.ids_run() == ["a"]
    assert len(delivery.deleted) == 2


def test_of_two_messages_of_one_job_the_second_runs_where_the_first_failed(bench):
    for _ in range(2):
        bench.send({"id": "a"})
    tries = iter([True, False])
    delivery = bench.deliver(bench.worker(lambda job: 1 / 0 if next(tries) else None))
    assert len(bench.runs) == 2
    assert len(delivery.deleted) == 1


def test_7_and_the_text_7_are_one_job_but_true_is_another(bench):
    for key in (7, "7", True, "true", 0, "0"):
        bench.send({"id": key})
    bench.deliver(bench.worker())
    assert sorted(bench.ids_run()) == ["0", "7", "true"]


def test_a_job_that_runs_elsewhere_is_handed_back_and_not_dead_lettered(bench, lines):
    started, finish = threading.Event(), threading.Event()

    def slow(job):
        started.set()
        assert finish.wait(10)

    bench.send({"id": "a"})
    elsewhere = threading.Thread(target=bench.deliver, args=[bench.worker(slow)])
    elsewhere.start()
    assert started.wait(10)
    bench.send({"id": "a"})
    worker = bench.worker()
    delivery = bench.deliver(worker)
    finish.set()
    elsewhere.join()
    assert delivery.deleted == ()
    assert [
        line["outcome"]
        for line in lines()
        if line.get("outcome") != "Succeeded" and "outcome" in line
    ] == ["Busy"]
    bench.deliver_until_settled(worker)
    assert bench.ids_run() == ["a"]
    assert len(bench.dead) == 0


# --- failed ---------------------------------------------------------------------------------------


def test_one_failure_of_ten_is_reported_alone_and_the_other_nine_run_once(bench):
    for number in range(10):
        bench.send({"id": number})
    worker = bench.worker(fail_for(4))
    delivery = bench.deliver(worker)
    assert len(delivery.deleted) == 9
    bench.deliver_until_settled(worker)
    assert Counter(bench.ids_run()) == Counter({str(n): 1 for n in range(10)} | {"4": 3})
    assert bodies(bench.dead) == ['{"id": 4}']


def test_failures_that_are_only_logged_elsewhere_are_dead_letters_here(bench):
    for number in range(1, 7):
        bench.send({"id": number})
    worker = bench.worker(fail_for(2, 5))
    bench.deliver_until_settled(worker)
    assert sorted(bodies(bench.dead)) == ['{"id": 2}', '{"id": 5}']
    assert set(bench.ids_run()) == {"1", "2", "3", "4", "5", "6"}


def test_a_permanent_error_is_dead_lettered_on_the_first_attempt(bench):
    bench.send({"id": "a"})
    delivery = bench.deliver(bench.worker(fail_for("a", by=PermanentError)))
    assert len(delivery.deleted) == 1
    cause = bench.causes()['{"id": "a"}']
    assert (cause["type"], cause["attempts"], cause["receives"]) == ("PermanentError", 1, 1)


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "ThrottlingException"}}, "Send"),
        ReadTimeoutError(endpoint_url="https://ses"),
        ConnectionResetError(),
        TimeoutError(),
        SystemExit(1),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_else_is_raised_is_retried_until_the_attempts_are_used_up(bench, error):
    def run(job):
        raise error

    bench.send({"id": "a"})
    bench.deliver_until_settled(bench.worker(run))
    assert [job.attempt for job in bench.runs] == [1, 2, 3]
    assert {job.token for job in bench.runs} == {"work:a"}
    assert bench.causes()['{"id": "a"}']["attempts"] == 3


def test_a_failed_job_is_not_visible_before_its_backoff_and_is_after(bench):
    bench.send({"id": "a"})
    worker = bench.worker(fail_for("a"))
    bench.deliver(worker)
    (delay,) = bench.delays()
    assert 1 <= delay <= 10
    bench.clock.advance(timedelta(seconds=delay - 0.1))
    assert bench.deliver(worker).received == ()
    bench.clock.advance(timedelta(seconds=0.1))
    assert len(bench.deliver(worker).received) == 1


def test_a_job_may_say_itself_when_it_wants_to_be_retried(bench):
    def run(job):
        raise RetryLater(30)

    bench.send({"id": "a"})
    bench.deliver(bench.worker(run))
    assert bench.delays() == [30]


def test_a_job_that_continues_later_is_visible_at_once(bench):
    pages = iter([ContinueLater(), ContinueLater(), None])

    def run(job):
        if page := next(pages):
            raise page

    bench.send({"id": "a"})
    worker = bench.worker(run)
    assert [len(bench.deliver(worker).received) for _ in range(4)] == [1, 1, 1, 0]
    assert len(bench.queue) == len(bench.dead) == 0


async def not_awaited(job):
    raise AssertionError("nobody awaits it")


def not_iterated(job):
    yield


@pytest.mark.parametrize("function", [not_awaited, not_iterated])
def test_a_function_that_has_not_run_when_it_returns_is_a_failure_and_no_success(bench, function):
    bench.send({"id": "a"})
    worker = bench.worker(function)
    assert bench.deliver(worker).deleted == ()
    bench.deliver_until_settled(worker)
    cause = bench.causes()['{"id": "a"}']
    assert cause["type"] == "TypeError"
    assert "must be a plain function" in cause["message"]


def test_a_key_expression_that_does_not_fit_one_payload_is_that_ones_failure_alone(bench):
    bodies = ['{"a": [{"x": 5, "id": "good"}]}', '{"a": [{"x": "5", "id": "bad"}]}']
    for body in bodies:
        bench.send(body)
    bench.deliver(bench.worker(key="a[?x>`1`] | sort_by(@, &x) | [0].id"))
    assert bench.ids_run() == ["good"]
    assert list(bench.causes()) == [bodies[1]]


def test_a_line_that_cannot_be_written_fails_no_batch(bench, monkeypatch):
    def broken(error):
        raise ValueError

    monkeypatch.setattr("redrive.worker.telemetry.fingerprint", broken)
    for id_ in ("bad", "good"):
        bench.send({"id": id_})
    delivery = bench.deliver(bench.worker(fail_for("bad")))
    assert delivery.error is None
    assert len(delivery.deleted) == 1


def test_a_job_that_failed_for_good_is_not_run_again_while_its_dead_letter_is_refused(bench):
    bench.send({"id": "a"})
    bench.sqs.fail_next("send_message", "AccessDenied", times=5)
    worker = bench.worker(fail_for("a", by=PermanentError))
    for _ in range(5):
        assert bench.deliver(worker).deleted == ()
        bench.pass_time(timedelta(hours=1))
    bench.deliver_until_settled(worker)
    assert bench.ids_run() == ["a"]
    cause = bench.causes()['{"id": "a"}']
    assert (cause["type"], cause["attempts"], cause["receives"]) == ("PermanentError", 1, 1)


def test_a_job_that_continues_for_ever_ends_with_a_cause(bench):
    def run(job):
        raise ContinueLater

    bench.send({"id": "a"})
    worker = bench.worker(run, contract=replace(bench.settings.contract, max_receives=5))
    bench.deliver_until_settled(worker)
    assert len(bench.runs) == 5
    assert bench.causes()['{"id": "a"}']["type"] == "ReceivedTooOften"


def test_a_failed_run_leaves_no_record_so_the_retry_runs_and_its_result_counts(bench):
    bench.send({"id": "a"})
    worker = bench.worker(lambda job: {"attempt": job.attempt} if job.attempt > 1 else 1 / 0)
    bench.deliver(worker)
    assert bench.rows("idempotency") == []
    bench.deliver_until_settled(worker)
    (record,) = bench.rows("idempotency")
    assert json.loads(record["data"]["S"]) == {"result": {"attempt": 2}}


def test_the_backoff_of_a_large_batch_is_set_ten_messages_a_call(bench):
    for number in range(23):
        bench.send({"id": number})
    worker = bench.worker(fail_for(*range(23)))
    bench.deliver(worker, batch_size=23)
    calls = [request for name, request in bench.sqs.calls if name.startswith("change_")]
    assert [len(request["Entries"]) for request in calls] == [10, 10, 3]


# --- the worker's own troubles --------------------------------------------------------------------


def test_a_dead_letter_that_sqs_did_not_confirm_keeps_the_message_in_its_queue(bench, lines):
    bench.send({"id": "a"})
    bench.sqs.fail_next("send_message", "AccessDenied")
    worker = bench.worker(fail_for("a", by=PermanentError))
    assert bench.deliver(worker).deleted == ()
    assert (len(bench.queue), len(bench.dead)) == (1, 0)
    refused = [line for line in lines() if line.get("message") == "dead-letter queue refused"]
    assert [line["error"] for line in refused] == ["AccessDenied"]
    bench.deliver_until_settled(worker)
    assert bodies(bench.dead) == ['{"id": "a"}']


def test_a_jobs_table_that_is_denied_does_not_hold_up_a_dead_letter(bench, dynamodb):
    dynamodb.delete_table(TableName="jobs")
    bench.send({"id": "a"})
    assert len(bench.deliver(bench.worker(fail_for("a", by=PermanentError))).deleted) == 1
    assert len(bench.dead) == 1


def test_a_claim_that_is_refused_starts_no_job_and_loses_none(bench, dynamodb, lines):
    dynamodb.delete_table(TableName="idempotency")
    for number in range(3):
        bench.send({"id": number})
    assert bench.deliver(bench.worker()).deleted == ()
    assert bench.runs == []
    assert (len(bench.queue), len(bench.dead)) == (3, 0)
    printed = lines()
    refused = [line for line in printed if line.get("message") == "idempotency table failed"]
    assert {line["error"] for line in refused} == {"ResourceNotFoundException"}
    assert sum(line.get("HandedBack", [0])[0] for line in printed) == 3


def test_a_result_that_the_table_refused_still_counts(bench, dynamodb, monkeypatch):
    def refuse(**request):
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateItem")

    monkeypatch.setattr(dynamodb, "update_item", refuse)
    bench.send({"id": "a"})
    context = lambda_context(remaining=timedelta(seconds=2.1))
    assert len(bench.deliver(bench.worker(), context=context).deleted) == 1
    assert bench.ids_run() == ["a"]


def test_a_result_is_offered_to_the_table_until_it_takes_it(bench, dynamodb, monkeypatch):
    update_item, refusals = dynamodb.update_item, [ThrottlingError, ThrottlingError]

    def refuse_twice(**request):
        if refusals:
            raise refusals.pop()
        return update_item(**request)

    monkeypatch.setattr("redrive.worker.idempotency._SAVE_AGAIN_SECONDS", 0)
    monkeypatch.setattr(dynamodb, "update_item", refuse_twice)
    bench.send({"id": "a"})
    assert len(bench.deliver(bench.worker()).deleted) == 1
    (record,) = bench.rows("idempotency")
    assert record["status"] == {"S": "COMPLETED"}
    assert bench.ids_run() == ["a"]


def test_a_permanent_error_stands_although_the_table_refused_to_forget_the_run(
    bench, dynamodb, monkeypatch
):
    def refuse(**request):
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "DeleteItem")

    monkeypatch.setattr(dynamodb, "delete_item", refuse)
    bench.send({"id": "a"})
    bench.deliver(bench.worker(fail_for("a", by=PermanentError)))
    assert bench.causes()['{"id": "a"}']["type"] == "PermanentError"


def test_a_backoff_that_sqs_refused_leaves_the_message_to_the_queues_own_timeout(bench, lines):
    bench.sqs.fail_next("change_message_visibility_batch", "AccessDenied")
    bench.send({"id": "a"})
    worker = bench.worker(fail_for("a"))
    delivery = bench.deliver(worker)
    assert delivery.error is None
    assert delivery.deleted == ()
    printed = lines()
    assert [line["VisibilityRefused"] for line in printed if "VisibilityRefused" in line] == [[1.0]]
    assert "AccessDenied" in [line.get("error") for line in printed]
    bench.clock.advance(timedelta(minutes=6))
    assert len(bench.deliver(worker).received) == 1


def test_a_job_is_not_started_in_less_time_than_its_p99(bench, lines):
    bench.send({"id": "a"})
    worker = bench.worker(p99_seconds=5)
    context = lambda_context(remaining=timedelta(seconds=4))
    assert bench.deliver(worker, context=context).deleted == ()
    assert bench.runs == []
    assert "NoTimeLeft" in [line.get("reason") for line in lines()]


def test_a_fault_of_the_worker_itself_keeps_the_message_and_spares_its_neighbours(
    bench, monkeypatch, lines
):
    def broken(error, **about):
        raise KeyError("a fault of ours")

    monkeypatch.setattr("redrive.worker.batch_run.cause_of", broken)
    bench.send({"id": "bad"})
    bench.send({"id": "good"})
    delivery = bench.deliver(bench.worker(fail_for("bad", by=PermanentError)))
    assert delivery.error is None
    assert bodies(bench.queue) == ['{"id": "bad"}']
    assert "WorkerError" in [line.get("reason") for line in lines()]


# --- what is no job -------------------------------------------------------------------------------

ODD_BODIES = [
    "hello",
    " ",
    "null",
    "[]",
    '"x"',
    "12",
    "NaN",
    '{"id": NaN}',
    '{"id": 1, "amount": 1e400}',
    '{"id": 1, "id": 2}',
    '\ufeff{"id": 1}',
    "{'id': 1}",
    '{"id": 1} {"id": 2}',
    "[" * 100_000,
    '{"id": "\\ud83d"}',
    '{"ID": 1}',
    '{"id": null}',
    '{"id": ""}',
    '{"id": []}',
    '{"id": ["a", null]}',
    '{"id": {}}',
    '{"id": 1.5}',
    json.dumps({"id": "x" * 513}),
]


@pytest.mark.parametrize("body", ODD_BODIES, ids=lambda body: body[:20])
def test_an_odd_body_is_a_dead_letter_with_a_cause_and_its_neighbours_run(bench, body):
    bench.send({"id": "before"})
    bench.send(body)
    bench.send({"id": "after"})
    delivery = bench.deliver(bench.worker())
    assert delivery.response == {"batchItemFailures": []}
    assert sorted(bench.ids_run()) == ["after", "before"]
    cause = bench.causes()[body]
    assert cause["type"] == "UnusablePayload"
    assert cause["message"]
    assert cause["attempts"] == 1


def test_a_payload_without_its_key_is_told_which_key(bench):
    bench.send('{"name": 1}')
    bench.deliver(bench.worker())
    assert bench.causes()['{"name": 1}']["message"] == "no value at `id`, the job's key"


def test_a_job_in_an_sns_envelope_is_the_same_job_as_without_it(bench):
    wrapped = {"Type": "Notification", "TopicArn": "arn:aws:sns:x:1:t", "Message": '{"id": "a"}'}
    bench.send(wrapped)
    bench.send({"id": "a"})
    bench.deliver(bench.worker())
    assert bench.ids_run() == ["a"]


def test_a_payload_with_names_like_those_of_an_envelope_is_left_alone(bench):
    payload = {"id": "a", "Type": "Notification", "Message": "hi"}
    bench.send(payload)
    bench.deliver(bench.worker())
    assert [job.payload for job in bench.runs] == [payload]


def test_a_wrapped_message_that_dies_stays_wrapped_once(bench):
    wrapped = json.dumps({"Type": "Notification", "TopicArn": "arn:a", "Message": '{"id": "a"}'})
    bench.send(wrapped)
    bench.deliver(bench.worker(fail_for("a", by=PermanentError)))
    assert bodies(bench.dead) == [wrapped]


def test_a_services_test_message_is_acknowledged_and_counted(bench, lines):
    bench.send({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})
    bench.send({"Service": "Amazon S3", "Event": "s3:Other", "Bucket": "b"})
    bench.deliver(bench.worker())
    assert bench.runs == []
    assert len(bench.queue) == 0
    assert len(bench.dead) == 1
    assert [line["ControlMessage"] for line in lines() if "ControlMessage" in line] == [[1.0]]


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({}, "takes events of SQS"),
        ({"key1": "value1"}, "takes events of SQS"),
        ([], "takes events of SQS"),
        ({"Records": []}, "takes events of SQS"),
        ({"Records": "x"}, "takes events of SQS"),
        ({"Records": [{"eventSource": "aws:s3"}]}, "another eventSource"),
        ({"Records": [{"eventSource": "aws:sqs"}]}, "no 'attributes'"),
        (
            {
                "Records": [
                    {
                        "eventSource": "aws:sqs",
                        "body": "{}",
                        "receiptHandle": "r",
                        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1"},
                    }
                ]
            },
            "no 'messageId'",
        ),
    ],
)
def test_an_event_that_is_not_of_sqs_gets_a_clear_error(bench, event, says):
    with pytest.raises(NotAnSqsEvent, match=says):
        bench.worker()(event, lambda_context())


def test_a_worker_without_its_environment_names_what_is_missing(bench, monkeypatch):
    monkeypatch.delenv("REDRIVE_STAGE", raising=False)
    bench.send({"id": "a"})
    worker = Worker(lambda job: None)
    assert isinstance(bench.deliver(worker).error, SettingsError)
    assert len(bench.queue) == 1


# --- FIFO -----------------------------------------------------------------------------------------


def send_to_group(bench, group, id_):
    bench.send({"id": id_}, MessageGroupId=group, MessageDeduplicationId=id_)


def test_a_failure_holds_up_its_own_group_and_no_other(fifo_bench):
    for group, id_ in [("A", "A1"), ("A", "A2"), ("B", "B3"), ("A", "A4"), ("B", "B5")]:
        send_to_group(fifo_bench, group, id_)
    worker = fifo_bench.worker(lambda job: 1 / 0 if job.key == "A2" and job.attempt == 1 else None)
    delivery = fifo_bench.deliver(worker)
    assert sorted(fifo_bench.ids_run()) == ["A1", "A2", "B3", "B5"]
    assert len(delivery.deleted) == 3
    assert bodies(fifo_bench.queue) == ['{"id": "A2"}', '{"id": "A4"}']
    assert len(set(fifo_bench.delays())) == 1
    fifo_bench.deliver_until_settled(worker)
    assert [id_ for id_ in fifo_bench.ids_run() if id_ in ("A2", "A4")] == ["A2", "A2", "A4"]


def test_a_permanent_failure_of_a_group_leaves_a_hole_and_the_group_goes_on(fifo_bench):
    for id_ in ("A1", "A2"):
        send_to_group(fifo_bench, "A", id_)
    fifo_bench.deliver(fifo_bench.worker(fail_for("A1", by=PermanentError)))
    assert fifo_bench.ids_run() == ["A1", "A2"]
    (letter,) = fifo_bench.dead_letters()
    assert letter["Attributes"]["MessageGroupId"] == "A"


def test_a_group_on_a_standard_queue_is_fairness_and_not_order(bench):
    together = threading.Barrier(2)
    for id_ in ("a", "b"):
        bench.send({"id": id_}, MessageGroupId="tenant")
    delivery = bench.deliver(bench.worker(lambda job: together.wait(10) and None))
    assert len(delivery.deleted) == 2


# --- at once, and built once ----------------------------------------------------------------------


def test_the_jobs_of_a_batch_run_at_the_same_time(bench):
    together = threading.Barrier(4)
    for number in range(4):
        bench.send({"id": number})
    delivery = bench.deliver(bench.worker(lambda job: together.wait(10) and None))
    assert len(delivery.deleted) == 4


def test_nothing_is_read_or_connected_before_the_first_invocation(monkeypatch):
    def connect(*arguments, **options):
        raise AssertionError("a client was made")

    monkeypatch.setattr("boto3.client", connect)
    Worker(lambda job: None)


def test_clients_and_persistence_layers_are_made_once_per_environment(bench, monkeypatch):
    import redrive.worker.idempotency as module

    made = []
    original = module.LeasedLayer
    monkeypatch.setattr(
        module, "LeasedLayer", lambda **options: made.append(1) or original(**options)
    )
    worker = bench.worker()
    for number in range(12):
        bench.send({"id": number})
        bench.deliver(worker)
    assert len(made) == bench.settings.batch_concurrency
    assert len(bench.runs) == 12


def test_a_claim_ends_with_its_own_invocation_also_in_a_warm_environment(bench):
    expiries = []

    def run(job):
        (record,) = [r for r in bench.rows("idempotency") if r["status"]["S"] == "INPROGRESS"]
        expiries.append(int(record["in_progress_expiration"]["N"]))

    worker = bench.worker(run, batch_concurrency=1)  # both runs in one slot
    for seconds, id_ in ((30, "a"), (5, "b")):
        bench.send({"id": id_})
        context = lambda_context(remaining=timedelta(seconds=seconds))
        bench.deliver(worker, context=context)
    assert 20_000 < expiries[0] - expiries[1] < 30_000


def test_a_job_knows_its_id_its_attempt_and_its_time(bench):
    message_id = bench.send({"id": "a"})
    bench.deliver(bench.worker())
    (job,) = bench.runs
    assert (job.id, job.key, job.token) == ("work:a", "a", "work:a")
    assert (job.attempt, job.message_id) == (1, message_id)
    assert timedelta(seconds=50) < job.time_left() <= timedelta(seconds=60)

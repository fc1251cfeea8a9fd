"""The delivery contract on the deployed stack, with jobs that do what their payload says."""

import json
from uuid import uuid4

import pytest

from tests.e2e.stack import cause_of, eventually


@pytest.fixture
def run_id() -> str:
    return str(uuid4())


def test_one_failure_of_ten_goes_to_the_dead_letters_alone_and_the_others_run_once(stack, run_id):
    jobs = [{"id": f"{run_id}-{n}", "succeed_on_attempt": 99 if n == 4 else 1} for n in range(10)]
    stack.publisher.publish_many("probe", jobs)
    dead = stack.await_dead_letter("probe", json.dumps(jobs[4], separators=(",", ":")))
    cause = cause_of(dead)
    assert (cause["type"], cause["attempts"]) == ("RuntimeError", 3)
    effects = [stack.await_effect(f"probe:{job['id']}") for job in jobs if job is not jobs[4]]
    assert effects == [[1]] * 9
    assert stack.effects(f"probe:{jobs[4]['id']}") == []


@pytest.mark.parametrize("fail_by", ["RuntimeError", "SystemExit", "RetryLater"])
def test_a_job_that_fails_first_is_retried_and_has_its_effect_once(stack, run_id, fail_by):
    payload = {"id": run_id, "succeed_on_attempt": 2, "fail_by": fail_by, "retry_seconds": 1}
    stack.send("probe", payload)
    assert stack.await_effect(f"probe:{run_id}") == [2]


@pytest.mark.parametrize("body", ["hello", "[]", "null", '{"id": null}', '{"a": 1, "a": 2}'])
def test_what_is_no_job_is_a_dead_letter_that_says_so(stack, body):
    stack.send("probe", body)
    cause = cause_of(stack.await_dead_letter("probe", body))
    assert (cause["type"], cause["attempts"]) == ("UnusablePayload", 1)


def test_a_message_of_the_largest_size_that_dies_is_kept_whole(stack, run_id):
    payload = {"id": run_id, "succeed_on_attempt": 99, "fail_by": "PermanentError", "x": ""}
    payload["x"] = "x" * (1_048_576 - len(json.dumps(payload)))
    body = json.dumps(payload)
    message_id = stack.send("probe", body)
    dead = stack.await_dead_letter("probe", body)
    assert "MessageAttributes" not in dead
    (row,) = eventually(
        lambda: stack.rows(f"probe:{run_id}", f"message#{message_id}"), what="the row of its cause"
    )
    assert json.loads(row["cause"]["S"])["type"] == "PermanentError"


def test_a_message_with_ten_attributes_that_dies_keeps_all_ten(stack, run_id):
    body = json.dumps({"id": run_id, "succeed_on_attempt": 99, "fail_by": "PermanentError"})
    attributes = {
        f"a{number}": {"DataType": "String", "StringValue": str(number)} for number in range(10)
    }
    stack.send("probe", body, MessageAttributes=attributes)
    assert stack.await_dead_letter("probe", body)["MessageAttributes"] == attributes


def test_a_job_wrapped_by_sns_runs(stack, run_id):
    message = json.dumps({"id": run_id})
    stack.send("probe", {"Type": "Notification", "TopicArn": "arn:aws:sns:x", "Message": message})
    assert stack.await_effect(f"probe:{run_id}") == [1]


def test_a_services_test_message_is_acknowledged(stack):
    message_id = stack.send("probe", {"Service": "Amazon S3", "Event": "s3:TestEvent"})
    (line,) = eventually(lambda: stack.log_lines("probe", message_id), what="it is settled")
    assert "ControlMessage" in line
    stack.await_empty("probe")


def test_the_same_job_published_while_it_runs_has_one_effect(stack, run_id):
    for _ in range(3):
        stack.send("probe", {"id": run_id, "seconds": 1})
    stack.await_effect(f"probe:{run_id}")
    stack.await_empty("probe")
    assert len(stack.effects(f"probe:{run_id}")) == 1


def test_a_failing_fifo_group_waits_in_order_and_the_other_goes_on(stack, run_id):
    failing, other = f"{run_id}-failing", f"{run_id}-other"
    jobs = [
        {"id": f"{group}-{n}", "group": group, "succeed_on_attempt": 3 if n == 1 else 1}
        for n in range(5)
        for group in (failing, other)
    ]
    for job in jobs:
        if job["group"] == other:
            job["succeed_on_attempt"] = 1
    sent = stack.publisher.publish_many("ordered", jobs, group_id=lambda job: job["group"])
    assert sent == 10

    def order(group):
        return [row["job"]["S"] for row in stack.rows(f"group:{group}", "effect#")]

    for group in (failing, other):
        eventually(lambda group=group: len(order(group)) == 5, what=f"{group} is done")
        assert order(group) == [f"{group}-{n}" for n in range(5)]


def test_a_console_test_with_another_event_gets_a_clear_error(stack):
    answer = stack.client("lambda").invoke(
        FunctionName=stack.outputs["ProbeWorkerName"], Payload=json.dumps({"key1": "value1"})
    )
    assert answer["FunctionError"]
    assert "takes events of SQS" in json.loads(answer["Payload"].read())["errorMessage"]


def test_what_a_service_must_know_to_publish_is_at_a_name_it_can_tell(stack):
    name = f"/redrive/{stack.stage}/send_email"
    parameter = stack.client("ssm").get_parameter(Name=name)["Parameter"]
    described = json.loads(parameter["Value"])
    assert described["key"] == "email_id"
    assert described["queues"] == {"normal": stack.queue_url("send_email")}

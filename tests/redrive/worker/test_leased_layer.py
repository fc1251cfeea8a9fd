"""The layer's claims, and what it relies on in the Powertools that is installed."""

import json
import time

import pytest
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyItemAlreadyExistsError,
)
from botocore.exceptions import ClientError

from redrive.errors import Killed
from redrive.testing import lambda_context
from redrive.worker.idempotency import record_id
from redrive.worker.leased_layer import LeasedLayer, LeaseLost

KEY = "receipt:ord_1"


class Run:
    """One run's hands on the table, with its claim of so many seconds."""

    def __init__(self, dynamodb, message_id="m1", seconds=60.0, max_kills=3):
        self.layer = LeasedLayer(table_name="idempotency", client=dynamodb, max_kills=max_kills)
        config = IdempotencyConfig(raise_on_no_idempotency_key=True, hash_function="sha256")
        self.layer.configure(config, key_prefix="work")
        self.layer.begin(message_id, lambda_context(function_name="worker"))
        self.milliseconds = int(seconds * 1000)

    def claim(self):
        self.layer.save_inprogress(data=KEY, remaining_time_in_millis=self.milliseconds)
        return self

    def succeed(self):
        self.layer.save_success(data=KEY, result={"result": 1})

    def fail(self):
        self.layer.delete_record(data=KEY, exception=ValueError())


@pytest.fixture
def record(dynamodb):
    def read():
        items = dynamodb.scan(TableName="idempotency")["Items"]
        return items[0] if items else None

    return read


LAPSED = -0.001


def test_a_claim_is_powertools_own_record_and_who_made_it(dynamodb, record):
    run = Run(dynamodb).claim()
    item = record()
    assert item["id"]["S"] == record_id("work", KEY)
    assert item["status"] == {"S": "INPROGRESS"}
    assert item["message_id"] == {"S": "m1"}
    assert item["kills"] == {"N": "0"}
    assert item["request_id"]["S"]
    assert item["log_stream"]["S"]
    assert abs(int(item["in_progress_expiration"]["N"]) - time.time() * 1000 - 60_000) < 5_000
    run.succeed()
    item = record()
    assert item["status"] == {"S": "COMPLETED"}
    assert json.loads(item["data"]["S"]) == {"result": 1}


def test_a_claim_that_stands_keeps_others_out_and_tells_until_when(dynamodb, record):
    Run(dynamodb).claim()
    other = Run(dynamodb, message_id="m2")
    with pytest.raises(IdempotencyItemAlreadyExistsError):
        other.claim()
    assert other.layer.busy_until == float(record()["in_progress_expiration"]["N"])


def test_a_finished_job_keeps_others_out_whatever_its_claims_time(dynamodb):
    Run(dynamodb, seconds=LAPSED).claim().succeed()
    with pytest.raises(IdempotencyItemAlreadyExistsError) as caught:
        Run(dynamodb).claim()
    assert caught.value.old_data_record.status == "COMPLETED"


def test_a_failed_run_leaves_nothing(dynamodb, record):
    Run(dynamodb).claim().fail()
    assert record() is None


def test_a_lapsed_claim_is_taken_over_and_the_kill_is_counted_for_its_message(dynamodb, record):
    for kills in range(3):
        run = Run(dynamodb, seconds=LAPSED).claim()
        assert record()["kills"] == {"N": str(kills)}
    assert run.layer.dead_run.kills == 2
    assert run.layer.dead_run.request_id


def test_another_message_of_the_job_takes_over_without_the_kills_of_the_first(dynamodb, record):
    Run(dynamodb, seconds=LAPSED).claim()
    Run(dynamodb, seconds=LAPSED).claim()
    Run(dynamodb, message_id="m2").claim()
    assert record()["kills"] == {"N": "0"}


def test_after_too_many_kills_the_job_is_claimed_but_not_started(dynamodb, record):
    first = Run(dynamodb, seconds=LAPSED, max_kills=1).claim()
    dead = record()
    with pytest.raises(Killed) as caught:
        Run(dynamodb, max_kills=1).claim()
    assert caught.value.kills == 1
    assert caught.value.request_id == dead["request_id"]["S"]
    assert caught.value.log_stream == dead["log_stream"]["S"]
    with pytest.raises(LeaseLost):
        first.succeed()


def test_of_two_successors_exactly_one_gets_the_job(dynamodb, monkeypatch):
    Run(dynamodb, seconds=LAPSED).claim()
    first, second = Run(dynamodb), Run(dynamodb)
    put_item = dynamodb.put_item

    def second_is_faster(**request):
        if ":in_progress" in request["ExpressionAttributeValues"]:
            monkeypatch.setattr(dynamodb, "put_item", put_item)
            second.claim()
        return put_item(**request)

    monkeypatch.setattr(dynamodb, "put_item", second_is_faster)
    with pytest.raises(IdempotencyItemAlreadyExistsError):
        first.claim()
    second.succeed()


def test_a_claim_that_is_renewed_while_it_is_looked_at_is_not_taken_over(dynamodb, monkeypatch):
    alive = Run(dynamodb, seconds=LAPSED).claim()
    put_item = dynamodb.put_item

    def renewed_meanwhile(**request):
        if ":in_progress" in request["ExpressionAttributeValues"]:
            alive.layer.renew(time.time() * 1000 + 60_000)
        return put_item(**request)

    monkeypatch.setattr(dynamodb, "put_item", renewed_meanwhile)
    with pytest.raises(IdempotencyItemAlreadyExistsError):
        Run(dynamodb).claim()
    alive.succeed()


@pytest.mark.parametrize("late_write", ["succeed", "fail"])
def test_a_run_that_lost_its_claim_undoes_nothing(dynamodb, record, late_write):
    frozen = Run(dynamodb, seconds=LAPSED).claim()
    successor = Run(dynamodb).claim()
    successor.succeed()
    finished = record()
    with pytest.raises(LeaseLost):
        frozen.layer.renew(time.time() * 1000 + 60_000)
    with pytest.raises(LeaseLost):
        getattr(frozen, late_write)()
    assert record() == finished


def test_a_claim_that_lapsed_but_is_still_its_runs_own_counts(dynamodb, record):
    Run(dynamodb, seconds=LAPSED).claim().succeed()
    assert record()["status"] == {"S": "COMPLETED"}


def test_renewing_moves_the_claims_end_and_nothing_else(dynamodb, record):
    run = Run(dynamodb).claim()
    before = record()
    run.layer.renew(1_900_000_000_123.7)
    assert record() == before | {"in_progress_expiration": {"N": "1900000000123"}}


def test_there_is_nothing_to_renew_before_the_claim_and_after_a_failure(dynamodb, record):
    run = Run(dynamodb)
    run.layer.renew(1_900_000_000_000)
    run.claim().fail()
    run.layer.renew(1_900_000_000_000)
    assert record() is None


def test_a_claim_whose_answer_came_too_late_is_known_for_our_own(dynamodb, monkeypatch):
    put_item = dynamodb.put_item

    def twice(**request):
        put_item(**request)
        monkeypatch.setattr(dynamodb, "put_item", put_item)
        return put_item(**request)  # botocore's repeat of a call that timed out

    monkeypatch.setattr(dynamodb, "put_item", twice)
    Run(dynamodb).claim().succeed()


@pytest.mark.parametrize("operation", ["put_item", "update_item", "delete_item"])
def test_a_table_that_refuses_is_no_lost_lease(dynamodb, monkeypatch, operation):
    run = Run(dynamodb)
    if operation != "put_item":
        run.claim()

    def refuse(**request):
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, operation)

    monkeypatch.setattr(dynamodb, operation, refuse)
    with pytest.raises(ClientError, match="Throttling"):
        {"put_item": run.claim, "update_item": run.succeed, "delete_item": run.fail}[operation]()


def test_a_record_that_powertools_wrote_itself_is_taken_over_when_it_has_lapsed(dynamodb, record):
    plain = DynamoDBPersistenceLayer(table_name="idempotency", boto3_client=dynamodb)
    config = IdempotencyConfig(raise_on_no_idempotency_key=True, hash_function="sha256")
    plain.configure(config, key_prefix="work")
    plain.save_inprogress(data=KEY, remaining_time_in_millis=-1)
    Run(dynamodb).claim().succeed()
    assert record()["status"] == {"S": "COMPLETED"}


def test_the_hooks_are_still_those_of_powertools():
    """Where this fails after an upgrade, the module is to be read against the new Powertools."""
    for hook in ("_put_record", "_update_record", "_delete_record"):
        assert getattr(LeasedLayer, hook) is not getattr(DynamoDBPersistenceLayer, hook)
    attributes = DynamoDBPersistenceLayer(table_name="t", boto3_client=_Client())
    assert attributes.key_attr == "id"
    assert attributes.expiry_attr == "expiration"
    assert attributes.in_progress_expiry_attr == "in_progress_expiration"
    assert attributes.status_attr == "status"
    assert attributes.data_attr == "data"
    assert IdempotencyAlreadyInProgressError


class _Client:
    """Enough of a client for a layer to be made."""

    class meta:  # noqa: N801
        class events:  # noqa: N801
            @staticmethod
            def register(*_):
                pass

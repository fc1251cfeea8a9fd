"""A worker has the permissions that it needs and no other: with one taken away it says which."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from redrive import Publisher, PublishFailed
from stacks.assets import BUILD
from tests.e2e.stack import eventually


@contextmanager
def without(stack: Any, *actions: str) -> Iterator[None]:
    """The probe's worker without these permissions, which come back at the end."""
    iam, function = stack.client("iam"), stack.outputs["ProbeWorkerName"]
    configuration = stack.client("lambda").get_function_configuration(FunctionName=function)
    role = configuration["Role"].rpartition("/")[2]
    (name,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
    denial = {"Effect": "Deny", "Action": list(actions), "Resource": "*"}
    less = {**document, "Statement": [*document["Statement"], denial]}

    def put(policy: Any) -> None:
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(policy))

    put(less)
    try:
        yield
    finally:
        put(document)


@pytest.mark.parametrize(
    ("action", "payload"),
    [
        ("dynamodb:PutItem", {}),
        ("dynamodb:DeleteItem", {"succeed_on_attempt": 2}),
        ("sqs:SendMessage", {"succeed_on_attempt": 99, "fail_by": "PermanentError"}),
    ],
)
def test_a_missing_permission_is_access_denied_in_the_log(stack, action, payload):
    run_id = str(uuid4())

    def denied() -> bool:
        return any("AccessDenied" in line for line in stack.log_lines("probe", run_id))

    with without(stack, action):
        stack.send("probe", {"id": run_id, **payload})
        eventually(denied, what=f"the log says AccessDenied without {action}")


def test_a_table_that_is_denied_for_a_while_loses_no_job_and_runs_none_twice(stack):
    ids = [str(uuid4()) for _ in range(10)]
    with without(stack, "dynamodb:PutItem", "dynamodb:PartiQLInsert"):
        stack.publisher.publish_many("probe", ({"id": id_} for id_ in ids))
        eventually(lambda: stack.log_lines("probe", ids[0]), what="the worker met the denial")
    for id_ in ids:
        assert len(stack.await_effect(f"probe:{id_}")) == 1


@pytest.fixture
def service(stack):
    """Makes the clients of a user who has the probe's publish policy and nothing else."""
    iam, name, policy = stack.client("iam"), str(uuid4()), stack.outputs["ProbePublishPolicyArn"]
    iam.create_user(UserName=name)
    iam.attach_user_policy(UserName=name, PolicyArn=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    yield lambda service: stack.client_as(key, service)
    iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
    iam.detach_user_policy(UserName=name, PolicyArn=policy)
    iam.delete_user(UserName=name)


def test_the_publish_policy_is_all_that_a_publisher_needs_and_no_more(stack, service):
    publisher, run_id = Publisher(stack.stage, sqs=service("sqs"), ssm=service("ssm")), str(uuid4())

    def published() -> str | None:
        with suppress(ClientError, PublishFailed):  # AWS knows a new key only after some seconds
            return publisher.publish("probe", {"id": run_id})

    assert eventually(published, what="the policy lets it publish") == f"probe:{run_id}"
    assert publisher.publish_many("probe", [{"id": run_id}]) == 1
    stack.await_effect(f"probe:{run_id}")
    with pytest.raises(ClientError, match="AccessDenied"):
        service("sqs").receive_message(QueueUrl=stack.queue_url("probe"))


def test_a_function_without_its_layer_does_not_find_its_dependency(stack, tmp_path):
    lambda_ = stack.client("lambda")
    function = stack.outputs["ProbeWorkerName"]
    configuration = lambda_.get_function_configuration(FunctionName=function)
    packed = shutil.make_archive(str(tmp_path / "probe"), "zip", BUILD / "functions" / "probe")
    name = f"without-layer-{uuid4()}"
    lambda_.create_function(
        FunctionName=name,
        Runtime=configuration["Runtime"],
        Handler=configuration["Handler"],
        Role=configuration["Role"],
        Code={"ZipFile": Path(packed).read_bytes()},
        Environment=configuration["Environment"],
    )
    try:
        answer = lambda_.invoke(FunctionName=name, Payload=b"{}")
        assert answer["FunctionError"]
        error = answer["Payload"].read().decode()
        assert "No module named 'aws_lambda_powertools'" in error
    finally:
        lambda_.delete_function(FunctionName=name)

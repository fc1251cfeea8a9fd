"""The statements of a group commit, on a table that parses them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from redrive.worker.group_commit import GroupCommit


@pytest.fixture
def group(stack, monkeypatch):
    monkeypatch.setattr("redrive.worker.group_commit._WAIT_SECONDS", 10)
    table = stack.outputs["IdempotencyTableName"]
    return GroupCommit(stack.client("dynamodb"), table, 100)


def together(group, writes):
    """All writes at the same time, each on a thread."""
    barrier = threading.Barrier(len(writes))
    group.expect(len(writes))

    def make(write):
        barrier.wait(10)
        return write()

    with ThreadPoolExecutor(len(writes)) as pool:
        return list(pool.map(make, writes))


def test_each_statement_answers_for_itself(stack, group):
    run_id = str(uuid4())
    table, dynamodb = stack.outputs["IdempotencyTableName"], stack.client("dynamodb")

    def insert(number):
        item = {"id": {"S": f"{run_id}-{number}"}, "owner": {"S": "me"}, "status": {"S": "new"}}
        return lambda: group.insert(item)

    def update(number, owner):
        values = {"status": {"S": "COMPLETED"}, "data": {"S": "{}"}}
        return lambda: group.update_own(f"{run_id}-{number}", owner, values)

    assert together(group, [insert(number) for number in range(10)]) == [True] * 10
    # One is there already, one has another owner, one is not there at all.
    writes = [insert(3), insert(10), update(0, "me"), update(1, "another"), update(99, "me")]
    assert together(group, writes) == [False, True, True, False, False]

    def status(number):
        key = {"id": {"S": f"{run_id}-{number}"}}
        return dynamodb.get_item(TableName=table, Key=key)["Item"]["status"]["S"]

    assert [status(number) for number in (0, 1, 3, 10)] == ["COMPLETED", "new", "new", "new"]

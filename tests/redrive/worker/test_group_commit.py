"""Many writes in one request; what is not taken just so is left to its own call."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from redrive.worker.group_commit import GroupCommit


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    # A slow machine must not make a group smaller: it is complete when all that are present came.
    monkeypatch.setattr("redrive.worker.group_commit._WAIT_SECONDS", 10)


class Table:
    """Answers BatchExecuteStatement; counts the statements of each request."""

    def __init__(self, answer=lambda statement: {}):
        self.answer, self.requests = answer, []

    def batch_execute_statement(self, Statements):  # noqa: N803
        self.requests.append(Statements)
        return {"Responses": [self.answer(one["Statement"]) for one in Statements]}


def insert_together(group, count, start=0, others=0):
    """So many threads insert at the same time; each one's answer, in order."""
    together = threading.Barrier(count)
    group.expect(count + others)

    def insert(number):
        together.wait(10)
        try:
            return group.insert({"id": {"S": str(number)}, "kills": {"N": "0"}})
        finally:
            group.ended()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(insert, range(start, start + count)))


def test_the_writes_of_a_batch_are_one_request():
    table = Table()
    assert insert_together(GroupCommit(table, "t", 100), 10) == [True] * 10
    assert sum(map(len, table.requests)) == 10
    assert len(table.requests) == 1


def test_a_statement_names_every_attribute_and_passes_the_values_as_parameters():
    table = Table()
    insert_together(GroupCommit(table, "t", 100), 2)
    statement = table.requests[0][0]
    assert statement["Statement"] == "INSERT INTO \"t\" VALUE {'id': ?, 'kills': ?}"
    assert statement["Parameters"][1] == {"N": "0"}


def test_an_update_asks_for_its_owner():
    table = Table()
    group = GroupCommit(table, "t", 100)
    group.expect(2)
    together = threading.Barrier(2)

    def update(number):
        together.wait(10)
        return group.update_own(str(number), "me", {"data": {"S": "1"}, "status": {"S": "2"}})

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(update, range(2))) == [True, True]
    (statement, _) = table.requests[0]
    assert statement["Statement"] == (
        'UPDATE "t" SET "data" = ? SET "status" = ? WHERE "id" = ? AND "owner" = ?'
    )
    assert statement["Parameters"][:2] == [{"S": "1"}, {"S": "2"}]
    assert statement["Parameters"][3] == {"S": "me"}


def test_one_write_alone_is_left_to_its_own_call_and_waits_for_nobody():
    table = Table()
    assert insert_together(GroupCommit(table, "t", 100), 1) == [False]
    assert table.requests == []


def test_no_request_has_more_than_twenty_five_statements():
    table = Table()
    answers = insert_together(GroupCommit(table, "t", 100), 60)
    assert max(map(len, table.requests)) <= 25
    assert sum(map(len, table.requests)) + answers.count(False) == 60


def test_a_refused_statement_is_its_own_threads_affair():
    table = Table(answer=lambda statement: {})
    refused = {"Error": {"Code": "DuplicateItem"}}
    answers = iter([{}, refused, {}])
    table.answer = lambda statement: next(answers)
    taken = insert_together(GroupCommit(table, "t", 100), 3)
    assert sorted(taken) == [False, True, True]


@pytest.mark.parametrize("error", [TimeoutError, MemoryError])
def test_a_request_that_fails_leaves_every_write_to_its_own_call(error):
    class Broken:
        def batch_execute_statement(self, **request):
            raise error

    assert insert_together(GroupCommit(Broken(), "t", 100), 5) == [False] * 5


def test_a_leader_that_dies_leaves_nobody_waiting():
    class Died(BaseException):
        pass

    class Deadly:
        def batch_execute_statement(self, **request):
            raise Died

    group = GroupCommit(Deadly(), "t", 100)
    group.expect(3)
    together = threading.Barrier(3)
    died, answers = [], []

    def insert(number):
        together.wait(10)
        try:
            answers.append(group.insert({"id": {"S": str(number)}}))
        except Died:
            died.append(number)

    threads = [threading.Thread(target=insert, args=[number]) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert len(died) >= 1
    assert not any(answers)


def test_a_thread_that_runs_on_is_not_waited_for_longer_than_a_moment(monkeypatch):
    monkeypatch.setattr("redrive.worker.group_commit._WAIT_SECONDS", 0.001)
    table = Table()
    group = GroupCommit(table, "t", 100)
    insert_together(group, 2, others=1)  # a job that is at work
    assert sum(map(len, table.requests)) <= 2


def test_the_next_writes_form_a_group_of_their_own():
    table = Table()
    group = GroupCommit(table, "t", 100)
    for start in (0, 10):
        assert insert_together(group, 10, start) == [True] * 10
    seen = [statement["Parameters"][0]["S"] for request in table.requests for statement in request]
    assert sorted(seen, key=int) == [str(number) for number in range(20)]

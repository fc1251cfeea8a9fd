"""The operator's functions on the deployed stack: jobs die, are looked at, and are replayed."""

from uuid import uuid4

import pytest

from tests.e2e.stack import OperatorRefused, eventually

CAUSES = {"Throttled": 100, "NoSuchCustomer": 120, "CardRefused": 80}


class Dead:
    """Jobs of `probe` that died for three causes."""

    def __init__(self, stack):
        self.stack, self.broken = stack, str(uuid4())
        self.ids = {
            cause: [f"{cause}-{number}-{self.broken}" for number in range(count)]
            for cause, count in CAUSES.items()
        }
        self.count = sum(CAUSES.values())
        stack.publisher.publish_many(
            "probe",
            (
                {"id": id_, "n": n, "cause": cause, "dies_unless_mended": self.broken}
                for cause, ids in self.ids.items()
                for n, id_ in enumerate(ids)
            ),
        )
        self.await_all_dead()

    def await_all_dead(self):
        """A letter may have its copy: on a slow machine a send's answer may come too late."""
        self.stack.await_empty("probe")
        self.depth = self.stack.dead_letter_count("probe")
        assert self.depth >= self.count

    def listed(self, **filters):
        return self.stack.operate("Inspect", job="probe", **filters)


def purge_what_others_left(stack):
    token = stack.operate("Inspect", job="probe")["confirm"]
    event = {"job": "probe", "action": "purge", "reason": "a test"}
    assert stack.operate("Replay", **event, confirm=token)["complete"]


@pytest.fixture(scope="module")
def dead(stack):
    purge_what_others_left(stack)
    dead = Dead(stack)
    yield dead
    stack.mend(dead.broken)
    stack.replay("probe", force=True)
    stack.await_empty("probe")


def test_a_list_shows_three_causes_with_their_counts_and_hides_nothing(dead):
    answer = dead.listed()
    assert {one["cause"]: one["count"] for one in answer["causes"]} == CAUSES
    assert (answer["matched"], answer["complete"]) == (300, True)
    assert dead.stack.dead_letter_count("probe") == dead.depth == answer["scanned"]


def test_two_ids_are_two_messages(dead):
    two = dead.ids["Throttled"][40:42]
    answer = dead.stack.replay("probe", ids=two)
    assert (answer["matched"], answer["replayed"], answer["errors"]) == (2, 2, [])
    dead.await_all_dead()
    replays = {
        one["id"]: one["replays"] for one in dead.listed(ids=dead.ids["Throttled"])["messages"]
    }
    assert {id_ for id_, count in replays.items() if count} == {f"probe:{id_}" for id_ in two}


def test_a_range_of_deaths_is_those_inside_and_what_died_at_its_end_stays(dead):
    ids = dead.ids["CardRefused"]
    before = {one["id"]: one for one in dead.listed(ids=ids)["messages"]}
    times = sorted({one["failed_at"] for one in before.values()})
    start, end = times[len(times) // 4], times[3 * len(times) // 4]
    inside = {id_ for id_, one in before.items() if start <= one["failed_at"] < end}
    answer = dead.stack.replay("probe", ids=ids, failed={"from": start, "to": end})
    assert answer["replayed"] == len(inside) < len(ids)
    dead.await_all_dead()
    after = {one["id"]: one["replays"] for one in dead.listed(ids=ids)["messages"]}
    assert {id_ for id_, replays in after.items() if replays} == inside


def test_cause_and_where_are_anded(dead):
    filters = {"cause": "NoSuchCustomer", "where": "n < `10`"}
    assert dead.stack.replay("probe", dry_run=True, **filters)["matched"] == 10
    answer = dead.stack.replay("probe", **filters)
    assert answer["replayed"] == 10
    assert {one["cause"] for one in answer["causes"]} == {"NoSuchCustomer"}
    dead.await_all_dead()


def test_who_may_only_look_cannot_act(dead):
    with pytest.raises(OperatorRefused, match="takes list, status"):
        dead.stack.operate("Inspect", job="probe", action="replay", reason="a test")


def test_a_purge_without_its_token_deletes_nothing_and_with_it_what_was_listed(dead):
    chosen = {"ids": dead.ids["CardRefused"][:3]}
    event = {"job": "probe", "action": "purge", "reason": "a test"}
    with pytest.raises(OperatorRefused, match="confirmation"):
        dead.stack.operate("Replay", **event, **chosen)
    other = dead.listed(ids=dead.ids["CardRefused"][:4])["confirm"]
    with pytest.raises(OperatorRefused, match="other filters"):
        dead.stack.operate("Replay", **event, **chosen, confirm=other)
    assert dead.stack.dead_letter_count("probe") == dead.depth
    token = dead.listed(**chosen)["confirm"]
    answer = dead.stack.operate("Replay", **event, **chosen, confirm=token)
    assert (answer["purged"], answer["complete"]) == (3, True)
    dead.count -= 3
    assert dead.listed()["matched"] == dead.count


def test_after_the_cause_is_mended_a_replay_of_all_does_each_job_once(dead):
    dead.stack.mend(dead.broken)
    answer = dead.stack.replay("probe")
    assert (answer["replayed"], answer["complete"]) == (dead.count, True)
    dead.stack.await_empty("probe")
    left = [
        id_ for ids in dead.ids.values() for id_ in ids if id_ not in dead.ids["CardRefused"][:3]
    ]
    assert [dead.stack.effects(f"probe:{id_}") for id_ in left] == [[1]] * len(left)
    assert dead.stack.dead_letter_count("probe") == 0
    dead.count = 0


def test_mails_that_the_provider_refused_are_sent_once_after_it_is_mended(stack, sink):
    ids = [f"receipt:{uuid4()}" for _ in range(20)]
    sink.fail(status=400, seconds=600)
    stack.publisher.publish_many(
        "send_email",
        (
            {"email_id": id_, "to": "ann@example.com", "template": "welcome", "data": {"name": "A"}}
            for id_ in ids
        ),
    )
    eventually(lambda: stack.dead_letter_count("send_email") >= 20, what="all are dead")
    stack.await_empty("send_email")
    sink.heal()
    answer = stack.replay("send_email", cause="EmailRejected", canary=5)
    run = answer["run"]

    def ended():
        status = stack.operate("Inspect", job="send_email", action="status", run=run)
        return status if status["complete"] else None

    assert eventually(ended, what="the replay has ended")["replayed"] == 20
    stack.await_empty("send_email")
    assert [len(sink.sent(id_)) for id_ in ids] == [1] * 20
    assert stack.dead_letter_count("send_email") == 0


def test_two_groups_keep_their_order(stack):
    broken = str(uuid4())
    groups = [f"{name}-{broken}" for name in "AB"]
    jobs = [
        {"id": f"{group}-{number}", "group": group, "dies_unless_mended": broken}
        for number in range(12)
        for group in groups
    ]
    stack.publisher.publish_many("ordered", jobs, group_id=lambda job: job["group"])
    stack.await_empty("ordered")
    stack.mend(broken)
    answer = stack.replay("ordered")
    assert (answer["replayed"], answer["complete"]) == (24, True)
    stack.await_empty("ordered")
    for group in groups:
        order = [row["job"]["S"] for row in stack.rows(f"group:{group}", "effect#")]
        assert order == [f"{group}-{number}" for number in range(12)]

"""Purging: only what was looked at goes."""

import time

import pytest

from redrive import PermanentError
from replay import confirm
from replay.confirm import Confirmed
from replay.errors import NotConfirmed
from tests.functions.replay.conftest import EVENT, now
from tests.functions.replay.test_replay import Throttled, move_by_sqs, put_letter


def test_what_was_listed_is_purged_and_nothing_else(desk):
    desk.die("a", "b", "c", error=Throttled())
    desk.die("d")
    listed = desk.inspect(cause="Throttled")
    answer = desk.ask(action="purge", cause="Throttled", confirm=listed["confirm"])
    assert (answer["purged"], answer["matched"], answer["complete"]) == (3, 3, True)
    assert desk.dead() == ["d"]
    assert desk.hidden() == 0
    assert desk.waiting() == []
    assert "purge_queue" not in [name for name, _ in desk.bench.sqs.calls]


def test_a_dry_run_confirms_as_a_list_does(desk):
    desk.die("a")
    token = desk.ask(action="purge", dry_run=True)["confirm"]
    assert desk.dead() == ["a"]
    assert desk.ask(action="purge", confirm=token)["purged"] == 1


def test_chosen_ids_go_and_the_order_in_which_they_are_named_does_not_matter(desk):
    desk.die(*"abcde")
    token = desk.inspect(ids=["a", "b"])["confirm"]
    assert desk.ask(action="purge", ids=["b", "a"], confirm=token)["purged"] == 2
    assert desk.dead() == ["c", "d", "e"]


def refused(desk, says, **event):
    before = desk.dead()
    with pytest.raises(NotConfirmed, match=says):
        desk.ask(action="purge", **event)
    assert desk.dead() == before
    assert desk.hidden() == 0


def test_without_a_token_nothing_is_deleted(desk):
    desk.die("a")
    refused(desk, "needs a confirmation")


@pytest.mark.parametrize("token", ["yes", "e30", "bnVsbA", "a" * 500, "ü", "W10"])
def test_what_is_no_token_deletes_nothing(desk, token):
    desk.die("a")
    refused(desk, "no token of a list", confirm=token)


@pytest.mark.parametrize(
    "other",
    [
        {"cause": "PermanentError"},
        {"ids": ["a"]},
        {"where": "id == 'a'"},
        {"failed": {"to": "2027-01-01T00:00:00Z"}},
        {"sent": {"to": "2027-01-01T00:00:00Z"}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_filters_token_deletes_nothing(desk, other):
    desk.die("a")
    refused(desk, "other filters", confirm=desk.inspect(**other)["confirm"])
    refused(desk, "other filters", confirm=desk.inspect()["confirm"], **other)


def test_another_jobs_token_deletes_nothing(desk):
    desk.die("a")
    token = confirm.token(EVENT | {"job": "other"}, Confirmed(count=1, moment=time.time_ns()))
    refused(desk, "another job", confirm=token)


def test_a_count_that_was_changed_by_hand_confirms_nothing():
    import base64
    import json

    token = confirm.token(EVENT, Confirmed(count=1, moment=int(time.time() * 1000)))
    claims = json.loads(base64.urlsafe_b64decode(token + "=="))
    changed = base64.urlsafe_b64encode(json.dumps(claims | {"count": 9}).encode()).decode()
    with pytest.raises(NotConfirmed):
        confirm.check(EVENT | {"confirm": changed})


def test_a_token_is_good_for_a_quarter_of_an_hour():
    moment = 1_000_000_000_000
    token = confirm.token(EVENT, Confirmed(count=1, moment=moment))
    event = EVENT | {"confirm": token}
    assert confirm.check(event, now=moment / 1000 + 900) == Confirmed(count=1, moment=moment)
    with pytest.raises(NotConfirmed, match="15 minutes"):
        confirm.check(event, now=moment / 1000 + 900.1)


def test_where_more_would_go_than_was_listed_nothing_goes(desk):
    move_by_sqs(desk, "a")  # whose time of death nobody knows
    token = desk.inspect()["confirm"]
    move_by_sqs(desk, "b")
    refused(desk, "2 match, and 1 were confirmed", confirm=token)
    assert desk.inspect()["matched"] == 2


def test_what_died_after_the_list_stays(desk):
    desk.die("a")
    token = desk.inspect()["confirm"]
    desk.die("b", error=PermanentError("since"))
    assert desk.ask(action="purge", confirm=token)["purged"] == 1
    assert desk.dead() == ["b"]


def test_where_less_is_left_than_was_listed_the_rest_goes(desk):
    desk.die("a", "b")
    token = desk.inspect()["confirm"]
    desk.ask(action="replay", ids=["a"])
    assert desk.ask(action="purge", confirm=token)["purged"] == 1


def test_a_list_that_saw_only_a_part_confirms_nothing(desk):
    desk.put_dead(5)
    assert desk.ask(desk.function(seconds_to_work=0))["confirm"] is None


def test_both_copies_of_one_death_go(desk):
    for _ in range(2):
        put_letter(desk, "a")
    token = desk.inspect()["confirm"]
    assert desk.ask(action="purge", confirm=token)["purged"] == 1
    assert desk.dead() == []


def test_one_that_sqs_keeps_is_told(desk):
    desk.die("a", "b")
    token = desk.inspect()["confirm"]
    desk.bench.sqs.fail_next("delete_message_batch", "ReceiptHandleIsInvalid", entries=[0])
    answer = desk.ask(action="purge", confirm=token)
    assert (answer["purged"], answer["failed"]) == (1, 1)
    assert "not deleted" in answer["errors"][0]["error"]


def test_a_body_that_is_no_job_can_be_purged_by_its_message_id(desk):
    message_id = desk.bench.send("hello")
    desk.run()
    token = desk.inspect(ids=[message_id])["confirm"]
    assert desk.ask(action="purge", ids=[message_id], confirm=token)["purged"] == 1


def test_a_future_death_is_not_the_lists_business(desk):
    put_letter(desk, "late", failed_at=now(+1.5))
    assert desk.inspect()["matched"] == 0

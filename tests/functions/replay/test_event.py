"""What an operator may paste, and what every refusal says."""

import json
import math
import re
import time
from pathlib import Path

import pytest

from replay.errors import BadEvent
from replay.event import ACTIONS, EXAMPLE, READING, read_event

JOBS = ("send_email", "resize_image")
NOON, ONE = "2026-11-29T12:00:00Z", "2026-11-29T13:00:00Z"


def read(actions=ACTIONS, **event):
    return read_event({"job": "send_email"} | event, JOBS, actions)


def refusal(**event):
    with pytest.raises(BadEvent) as caught:
        read(**event)
    return str(caught.value)


def test_a_job_alone_is_a_list_of_all():
    request = read()
    assert (request.action, request.job, request.only_reads) == ("list", "send_email", True)
    filters = request.filters
    assert {filters.ids, filters.failed, filters.sent, filters.cause, filters.where} == {None}
    assert (request.limit, request.rate, request.canary) == (None, None, 0)
    assert (request.dry_run, request.force, request.show_payload) == (False, False, False)


def test_the_example_in_the_refusals_is_one_that_is_taken():
    assert read(**json.loads(EXAMPLE)).action == "replay"


def test_all_fields_together():
    request = read(
        action="replay",
        ids=["receipt:ord_1", 7],
        failed={"from": NOON, "to": ONE},
        sent={"to": ONE},
        cause="Throttled",
        where="data.amount > `100`",
        limit=500,
        rate=50,
        canary=5,
        dry_run=True,
        force=False,
        reason="SES was down",
    )
    assert request.filters.ids == {"receipt:ord_1", "7"}
    assert request.filters.failed.end - request.filters.failed.start == 3_600_000
    assert request.filters.sent.start == -math.inf
    assert (request.limit, request.rate, request.canary, request.dry_run) == (500, 50.0, 5, True)


def test_null_is_a_field_that_is_left_out():
    assert read(limit=None, ids=None, reason=None, failed={"from": NOON, "to": None}).limit is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("action", "rewind"),
        ("action", 7),
        ("ids", "receipt:ord_1"),
        ("ids", []),
        ("ids", [None]),
        ("ids", [True]),
        ("ids", [{"id": 1}]),
        ("ids", ["x"] * 501),
        ("failed", NOON),
        ("failed", {}),
        ("failed", {"from": NOON, "until": ONE}),
        ("failed", {"from": "2026-11-29T12:00:00"}),
        ("failed", {"from": "2026-11-29"}),
        ("failed", {"from": "yesterday"}),
        ("failed", {"from": 1764417600}),
        ("failed", {"from": 1764417600000}),
        ("failed", {"from": "1764417600"}),
        ("failed", {"from": "57000-01-01T00:00:00Z"}),
        ("failed", {"from": ONE, "to": NOON}),
        ("failed", {"from": NOON, "to": NOON}),
        ("sent", {"from": True}),
        ("cause", ""),
        ("cause", " "),
        ("cause", 7),
        ("cause", ["Throttled"]),
        ("where", "data.["),
        ("where", ""),
        ("where", {"amount": 1}),
        ("where", "x" * 1025),
        ("limit", 0),
        ("limit", -1),
        ("limit", 1.5),
        ("limit", "500"),
        ("limit", True),
        ("rate", 0),
        ("rate", -1),
        ("rate", "fast"),
        ("rate", 10_001),
        ("rate", True),
        ("rate", math.nan),
        ("rate", math.inf),
        ("canary", -1),
        ("canary", "5"),
        ("canary", False),
        ("dry_run", "true"),
        ("dry_run", 1),
        ("force", 0),
        ("force", "no"),
        ("reason", 7),
        ("reason", "x" * 1025),
        ("confirm", 7),
        ("run", []),
        ("show_payload", "yes"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_name_with_what_is_allowed(name, value):
    told = refusal(**{name: value})
    assert f'"{name}"' in told
    assert f'Example: "{name}": ' in told
    assert "it is" in told or "takes" in told


def test_a_range_says_what_is_wrong_with_it():
    assert "has no time zone" in refusal(failed={"from": "2026-11-29T12:00:00"})
    assert "not a number" in refusal(failed={"from": 1764417600})
    assert "not before" in refusal(failed={"from": ONE, "to": NOON})
    assert "ISO 8601" in refusal(failed={"from": "yesterday"})


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/St_Johns"])
def test_a_range_means_the_same_on_every_machine(monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        noon = read(failed={"from": NOON}).filters.failed.start
        assert read(failed={"from": "2026-11-29T21:00:00+09:00"}).filters.failed.start == noon
        assert noon == 1795953600000.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_unknown_field_is_refused_with_the_one_that_was_meant():
    told = refusal(jbo="send_email", action="list")
    assert 'no field "jbo"' in told
    told = refusal(dryrun=True)
    assert 'Did you mean "dry_run"?' in told
    assert "show_payload" in told
    assert EXAMPLE in told


@pytest.mark.parametrize("event", [None, [], "list", 7])
def test_an_event_that_is_no_object_is_refused_with_an_example(event):
    with pytest.raises(BadEvent, match="not a JSON object"):
        read_event(event, JOBS, ACTIONS)


@pytest.mark.parametrize("event", [{}, {"job": None}, {"job": "send_emial"}, {"job": "key-value1"}])
def test_a_job_that_does_not_exist_is_refused_with_those_that_do(event):
    with pytest.raises(BadEvent, match="send_email, resize_image"):
        read_event(event, JOBS, ACTIONS)


@pytest.mark.parametrize("action", ["replay", "purge"])
def test_who_acts_says_why(action):
    assert '"reason"' in refusal(action=action)
    assert read(action=action, dry_run=True).only_reads


@pytest.mark.parametrize(
    "more", [{"limit": 5}, {"rate": 5}, {"canary": 5}, {"force": True}], ids=str
)
def test_a_purge_takes_nothing_that_it_would_not_heed(more):
    (name,) = more
    assert f'"{name}"' in refusal(action="purge", reason="old", **more)


def test_who_may_only_look_is_told_what_there_is():
    with pytest.raises(BadEvent, match="takes list, status"):
        read(READING, action="replay", reason="x")
    assert read(READING).action == "list"


def test_every_event_of_the_runbook_is_one_that_is_taken():
    text = (Path(__file__).parents[3] / "README.md").read_text()
    events = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    events = [event for event in events if "job" in event]
    assert {event.get("action", "list") for event in events} == set(ACTIONS)
    for event in events:
        assert read_event(event, JOBS, ACTIONS).job == "send_email"

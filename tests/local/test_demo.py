import io
from dataclasses import replace

import pytest
from rich.console import Console

from local.demo import (
    DELIVERABLE,
    TO_REPLAY,
    DeadLetter,
    Evidence,
    Operation,
    Page,
    Progress,
    findings,
)
from local.demo_view import (
    PLAN,
    fresh_state,
    show_causes,
    show_findings,
    show_operations,
    show_page,
    show_progress,
)
from redrive.message import Cause, Envelope

CAUSE = Cause(
    type="EmailRejected",
    message="BadRequestException: Illegal address: nobody@nowhere.invalid",
    fingerprint="e0fba80a",
    attempts=1,
    receives=1,
    failed_at="2026-11-29T10:00:00.000Z",
    function="worker",
    request_id="r",
    log_stream="l",
)
LETTER = DeadLetter(
    {"email_id": "receipt:ord_900", "to": "nobody@nowhere.invalid"}, Envelope(cause=CAUSE)
)
ALL_HELD = Evidence(
    sent=[f"receipt:ord_{number}" for number in (*range(DELIVERABLE), *TO_REPLAY)],
    refused=80,
    dead_letters=[LETTER] * 5,
    left=0,
    replayed=40,
    calls_before=[],
    calls=["Growth"],
    alarm="OK",
)
UNEXPLAINED = replace(LETTER, envelope=Envelope(cause=replace(CAUSE, message="it failed")))


def test_the_demo_succeeds_when_all_held():
    assert all(finding.held for finding in findings(ALL_HELD))


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        (replace(ALL_HELD, sent=ALL_HELD.sent[1:]), "174 of 175 e-mails were sent"),
        (replace(ALL_HELD, sent=[*ALL_HELD.sent, "receipt:ord_7"]), "1 were sent twice"),
        (replace(ALL_HELD, sent=[*ALL_HELD.sent[1:], "other"]), "174 of 175 e-mails were sent"),
        (replace(ALL_HELD, refused=0), "0 calls were refused"),
        (replace(ALL_HELD, dead_letters=[LETTER] * 4), "4 dead letters"),
        (replace(ALL_HELD, dead_letters=[LETTER] * 6), "6 dead letters"),
        (replace(ALL_HELD, dead_letters=[LETTER] * 4 + [UNEXPLAINED]), "4 of them say why"),
        (replace(ALL_HELD, left=1), "1 messages are left"),
        (replace(ALL_HELD, replayed=39), "39 dead letters were replayed"),
        (replace(ALL_HELD, calls_before=["Growth"]), "1 times somebody was paged for 5"),
        (replace(ALL_HELD, calls=[]), "0 time somebody was paged for 40 more"),
        (replace(ALL_HELD, calls=["Growth", "Growth"]), "2 time somebody was paged"),
        (replace(ALL_HELD, alarm="ALARM"), "the alarm is ALARM"),
        (replace(ALL_HELD, sent=ALL_HELD.sent[:-1]), "39 of them sent"),
    ],
)
def test_the_demo_fails_and_says_what_did_not_hold(evidence, told):
    console = Console(file=io.StringIO(), width=100)

    assert show_findings(console, findings(evidence)) is False

    (missed,) = [line for line in console.file.getvalue().splitlines() if line.startswith("✗")]
    assert told in missed


def test_without_a_terminal_the_progress_is_plain_lines_one_a_second():
    console = Console(file=io.StringIO(), width=100)
    steps = [
        Progress("working", seconds, waiting=9, in_flight=0, dead=0, sent=0, expected=180)
        for seconds in (0.0, 0.4, 0.8, 1.2)
    ]

    show_progress(console, [*steps, Progress("recovering", 1.3, 0, 0, 5, DELIVERABLE, 180)])

    lines = console.file.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["0.0", "1.2", "1.3"]
    assert "sent 175" in lines[-1]


def test_on_a_terminal_the_progress_is_a_table_in_one_place():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)

    show_progress(console, [Progress("working", 1.0, 3, 2, 1, sent, 180) for sent in range(5)])

    assert "in flight" in console.file.getvalue()
    assert "\x1b[1A" in console.file.getvalue()  # goes back up to draw over itself


def test_the_demo_says_first_what_it_will_do():
    assert PLAN.startswith(
        "This publishes 200 e-mails: 175 different ones, 20 of them twice, and 5 "
    )
    assert PLAN.endswith("by its own mistake, which pages somebody, who replays these.")


def test_a_demo_takes_away_what_ended_demos_left_and_nothing_of_a_running_one(tmp_path):
    with fresh_state(tmp_path) as running:
        (running / "ministack.log").touch()
        with fresh_state(tmp_path) as other:
            assert (running / "ministack.log").exists()
        with fresh_state(tmp_path) as third:
            assert not other.exists()
            assert {path for path in tmp_path.iterdir() if path.is_dir()} == {running, third}


def test_the_causes_are_listed_a_missing_one_too():
    console = Console(file=io.StringIO(), width=120)

    show_causes(console, [LETTER, replace(LETTER, envelope=None)])

    shown = console.file.getvalue()
    assert "EmailRejected" in shown
    assert "Illegal address: nobody@nowhere.invalid" in shown
    assert "none" in shown


def test_a_page_is_shown_with_its_text_and_tells_its_events():
    console = Console(file=io.StringIO(), width=120)
    page = Page("Growth", "ALARM", 'Forty died.\n{"job": "send_email"}\nThen:\n{"action": "x"}')

    show_page(console, page)

    assert "ALARM Growth" in console.file.getvalue()
    assert "Forty died." in console.file.getvalue()
    assert page.events == [{"job": "send_email"}, {"action": "x"}]


def test_what_the_operator_asked_and_what_was_answered_is_shown():
    console = Console(file=io.StringIO(), width=120)
    cause = {"cause": "EmailRejected", "fingerprint": "e0fba80a", "count": 40}
    answer = {
        "scanned": 45,
        "matched": 40,
        "replayed": 40,
        "complete": True,
        "causes": [cause | {"first": "10:00", "last": "10:01"}],
    }
    operation = Operation("Replay", {"job": "send_email", "canary": 5}, answer)
    refused = Operation("Replay", {"jbo": 1}, {"errorMessage": "no field"})

    show_operations(console, [operation, refused])

    shown = console.file.getvalue()
    assert '{"job": "send_email", "canary": 5}' in shown
    assert "40 x EmailRejected (e0fba80a)" in shown
    assert "matched 40, replayed 40, complete" in shown
    assert "no field" in shown

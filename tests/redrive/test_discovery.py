"""What the stack's parameter says of a job, as text; the publisher's tests ask SSM for it."""

import json

import pytest

from redrive.discovery import Destination

PARAMETER = {
    "version": 1,
    "job": "echo",
    "key": "id",
    "queues": {"high": "https://sqs/echo-high", "normal": "https://sqs/echo"},
    "dead_letter_queue": "https://sqs/echo-dead",
    "fifo": False,
    "limits": {"max_message_bytes": 1_048_576, "max_replays": 7},
}


def parse(**changes):
    return Destination.parse("echo", json.dumps(PARAMETER | changes))


def test_a_destination_knows_all_queues_of_its_job():
    found = parse()
    assert found.queue_url == "https://sqs/echo"
    assert found.queue_urls == ("https://sqs/echo-high", "https://sqs/echo")
    assert found.dead_letter_queue_url == "https://sqs/echo-dead"


def test_the_bounds_are_those_that_the_stack_says():
    found = parse()
    assert (found.max_message_bytes, found.max_replays) == (1_048_576, 7)


def test_a_stack_from_before_replays_were_limited_has_the_default():
    assert parse(limits={"max_message_bytes": 262_144}).max_replays == 3


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"queues": {"high": "https://sqs/echo-high"}}, "it has no 'normal'"),
        ({"queues": ["https://sqs/echo"]}, "it is no JSON object of the form"),
        ({"limits": {"max_replays": 7}}, "it has no 'max_message_bytes'"),
        ({"limits": []}, "it is no JSON object of the form"),
        ({"limits": {"max_message_bytes": 1, "max_replays": None}}, "it is no JSON object of the"),
    ],
)
def test_a_parameter_of_another_form_says_what_is_wrong_with_it(changes, problem):
    with pytest.raises(ValueError, match=problem):
        parse(**changes)


def test_a_parameter_without_a_dead_letter_queue_is_refused():
    fields = {name: value for name, value in PARAMETER.items() if name != "dead_letter_queue"}
    with pytest.raises(ValueError, match="it has no 'dead_letter_queue'"):
        Destination.parse("echo", json.dumps(fields))

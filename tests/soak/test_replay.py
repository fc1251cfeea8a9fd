"""Replays that are killed, and replays that outlast whoever waits, on the deployed stack."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.stack import eventually


def die(stack, job, count):
    """So many dead jobs of `probe`, and what must be mended for them to live."""
    broken = str(uuid4())
    ids = [f"{number}-{broken}" for number in range(count)]
    stack.publisher.publish_many(job, ({"id": id_, "dies_unless_mended": broken} for id_ in ids))
    stack.await_empty(job)
    return broken, ids


def replay_processes():
    """The embedded AWS's processes that run the function `Replay`."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"POWERTOOLS_SERVICE_NAME=replay" in environment:
            yield int(folder.name)


def status(stack, run):
    return stack.operate("Inspect", job="probe", action="status", run=run)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the function's process by /proc")
def test_a_replay_that_is_killed_in_the_middle_loses_nothing_and_doubles_nothing(stack):
    broken, ids = die(stack, "probe", 500)
    stack.mend(broken)
    answers = []

    def replay():
        try:
            answers.append(stack.replay("probe", rate=100))
        except Exception as error:
            answers.append(error)

    run = threading.Thread(target=replay)
    run.start()
    eventually(lambda: stack.dead_letter_count("probe") < 400, what="a part is replayed")
    for process in replay_processes():
        os.kill(process, signal.SIGKILL)
    run.join()
    (answer,) = answers
    assert isinstance(answer, Exception), answer  # it was killed in the middle

    def again():
        try:
            answer = stack.replay("probe")
        except Exception:  # the killed run's lock stands for its lease
            return None
        return answer if answer["complete"] else None

    eventually(again, what="a second replay did the rest")
    stack.await_empty("probe")
    assert stack.dead_letter_count("probe") == 0
    effects = [stack.effects(f"probe:{id_}") for id_ in ids]
    assert effects == [[1]] * len(ids)


def test_a_slow_replay_of_many_answers_in_time_and_goes_on_by_itself(stack):
    """3,000 at 50 a second: a minute."""
    sqs = stack.client("sqs")
    url = stack.outputs["ProbeDeadLetterQueueUrl"]
    ids = [str(uuid4()) for _ in range(3000)]
    for start in range(0, 3000, 10):
        entries = [
            {"Id": str(place), "MessageBody": json.dumps({"id": id_})}
            for place, id_ in enumerate(ids[start : start + 10])
        ]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    begun = time.monotonic()
    answer = stack.replay("probe", rate=50)
    first_answer = time.monotonic() - begun
    assert first_answer < 45
    assert answer["complete"] is False
    assert 0 < answer["replayed"] < 3000

    seen = []

    def ended():
        told = status(stack, answer["run"])
        seen.append((time.monotonic() - begun, told["replayed"]))
        return told if told["complete"] else None

    last = eventually(ended, what="the run has ended")
    took = time.monotonic() - begun
    print(
        f"\n3,000 at 50 a second: first answer after {first_answer:.1f} s with "
        f"{answer['replayed']} replayed, all after {took:.0f} s"
    )
    assert (last["replayed"], last["failed"]) == (3000, 0)
    counts = [count for _, count in seen]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2  # it could be followed
    assert took > 3000 / 50 * 0.9
    stack.await_empty("probe")
    assert stack.dead_letter_count("probe") == 0
    assert [stack.effects(f"probe:{id_}") for id_ in ids[::100]] == [[1]] * 30

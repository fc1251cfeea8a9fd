"""Services that are away for a while, and FIFO order through failures, on the deployed stack."""

import time
from collections import Counter
from uuid import uuid4

from tests.e2e.stack import eventually
from tests.e2e.test_permissions import without

OUTAGE_SECONDS = 20


def test_jobs_of_a_mail_outage_are_all_sent_once_and_none_is_dead(stack, sink):
    ids = [f"welcome:{uuid4()}" for _ in range(100)]
    sink.fail(status=503, seconds=OUTAGE_SECONDS)
    stack.publisher.publish_many(
        "send_email",
        (
            {
                "email_id": id_,
                "to": "ann@example.com",
                "template": "welcome",
                "data": {"name": "Ann"},
            }
            for id_ in ids
        ),
    )
    eventually(
        lambda: set(ids) <= {mail["email_id"] for mail in sink.all_sent()}, what="all are sent"
    )
    stack.await_empty("send_email")
    counts = Counter(mail["email_id"] for mail in sink.all_sent())
    assert [counts[id_] for id_ in ids] == [1] * len(ids)
    assert stack.dead_letter_count("send_email") == 0


def test_a_denied_idempotency_table_loses_nothing_runs_nothing_twice_and_uses_no_attempt(stack):
    ids = [str(uuid4()) for _ in range(30)]
    with without(stack, "dynamodb:PutItem", "dynamodb:PartiQLInsert"):
        stack.publisher.publish_many("probe", ({"id": id_} for id_ in ids))
        eventually(lambda: stack.log_lines("probe", ids[0]), what="the worker met the denial")
        time.sleep(OUTAGE_SECONDS)
    effects = [stack.await_effect(f"probe:{id_}") for id_ in ids]
    stack.await_empty("probe")
    assert effects == [[1]] * len(ids)
    assert [stack.effects(f"probe:{id_}") for id_ in ids] == effects


def test_the_order_inside_each_fifo_group_holds_through_failures(stack):
    run_id = str(uuid4())
    groups = [f"{run_id}-{number}" for number in range(10)]
    failing = {f"{groups[0]}-3", f"{groups[4]}-0", f"{groups[9]}-19"}
    jobs = [
        {"id": id_, "group": group, "succeed_on_attempt": 3 if id_ in failing else 1}
        for number in range(20)
        for group in groups
        for id_ in [f"{group}-{number}"]
    ]
    sent = stack.publisher.publish_many("ordered", jobs, group_id=lambda job: job["group"])
    assert sent == 200

    def order(group):
        return [row["job"]["S"] for row in stack.rows(f"group:{group}", "effect#")]

    for group in groups:
        eventually(lambda group=group: len(order(group)) == 20, what=f"{group} is done")
        assert order(group) == [f"{group}-{number}" for number in range(20)]

"""The rows of runs: who replays which queue, why, and how far it has come.

One lock for each dead-letter queue, which is a lease: a run that was killed keeps others out no
longer than that.
"""

import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from botocore.exceptions import ClientError

from redrive import aws_errors
from redrive.message import iso_time
from replay.errors import NoSuchRun, RunUnderWay
from replay.report import without_payloads

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_REMEMBER_SECONDS: Final = 90 * 24 * 3600


class LockLost(Exception):
    """Another run has the queue: this one was away for longer than its lease."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run, through all its hops. `started` and `moment` are milliseconds since the epoch: what
    died after the moment is not its business. `state` is what the next hop must know.
    """

    id: str
    job: str
    fields: Mapping[str, Any]
    started: int
    moment: int
    hop: int = 0
    state: str | None = None
    answer: Mapping[str, Any] = field(default_factory=dict)
    running: bool = True


class Runs:
    """All runs of a stage."""

    def __init__(self, dynamodb: "DynamoDBClient", table: str, *, lease_seconds: float) -> None:
        self._dynamodb, self._table, self._lease_seconds = dynamodb, table, lease_seconds

    def begin(self, job: str, fields: Mapping[str, Any], moment: float = math.inf) -> Run:
        """Starts a run on what has died by now, or by an earlier moment.

        Raises RunUnderWay, naming the run that has the queue.
        """
        now = time.time()
        started = int(now * 1000)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        run = Run(
            id=f"{stamp}-{uuid4().hex[:6]}",
            job=job,
            fields=fields,
            started=started,
            moment=int(min(started, moment)),
        )
        # Its own id: botocore repeats a call whose answer came too late.
        self._lock(run, "attribute_not_exists(run) OR #until < :now OR run = :run")
        try:
            self.write(run)
        except Exception:
            self._unlock(run)
            raise
        return run

    def resume(self, job: str, run_id: str, hop: int) -> Run | None:
        """Takes up a run where its last hop left it; None where that is another's task already.

        Raises RunUnderWay where another run has the queue by now.
        """
        row = self._get(job, f"run#{run_id}")
        if not row or not row["running"]["BOOL"] or int(row["hop"]["N"]) != hop:
            return None
        run = Run(
            id=run_id,
            job=job,
            fields=json.loads(row["event"]["S"]),
            started=int(row["started"]["N"]),
            moment=int(row["moment"]["N"]),
            hop=hop,
            state=row["state"]["S"],
            answer=json.loads(row["answer"]["S"]),
        )
        # Lambda may deliver an asynchronous event twice: a hop that has the lock keeps it.
        self._lock(run, "(run = :run AND hop < :hop) OR #until < :now")
        return run

    def renew(self, run: Run) -> None:
        """Keeps the queue for another lease, and writes how far the run has come.

        Raises LockLost, and what boto3 raises.
        """
        try:
            self._lock(run, "run = :run AND hop = :hop")
        except RunUnderWay as error:
            raise LockLost(str(error)) from None
        self.write(run)

    def write(self, run: Run) -> None:
        """Writes the run's row."""
        answer = dict(run.answer)
        answer["messages"] = without_payloads(answer.get("messages", ()))
        event = {name: run.fields[name] for name in run.fields if name != "confirm"}
        item: dict[str, Any] = {
            **_key(run.job, f"run#{run.id}"),
            "event": {"S": json.dumps(event)},
            "action": {"S": str(run.fields.get("action"))},
            "reason": {"S": str(run.fields.get("reason"))},
            "moment": {"N": str(run.moment)},
            "started": {"N": str(run.started)},
            "started_at": {"S": iso_time(run.started)},
            "updated_at": {"S": iso_time(time.time() * 1000)},
            "hop": {"N": str(run.hop)},
            "running": {"BOOL": run.running},
            "state": {"S": run.state or "{}"},
            "answer": {"S": json.dumps(answer)},
            "expiration": {"N": str(int(time.time()) + _REMEMBER_SECONDS)},
        }
        self._dynamodb.put_item(TableName=self._table, Item=item)

    def hand_over(self, run: Run, state: str, answer: Mapping[str, Any]) -> None:
        """Leaves the run to its next hop, which has a lease's time to begin."""
        self._lock(run, "run = :run AND hop = :hop")
        run.hop, run.state, run.answer = run.hop + 1, state, answer
        self.write(run)

    def finish(self, run: Run, answer: Mapping[str, Any]) -> None:
        """Ends the run, and lets others have the queue."""
        run.running, run.answer = False, answer
        try:
            self.write(run)
        finally:
            self._unlock(run)

    def refuse_while_running(self, job: str) -> None:
        """Raises RunUnderWay where a run has the queue: a reader would hide messages from it."""
        lock = self._get(job, "lock")
        if lock and int(lock["until"]["N"]) >= time.time() * 1000:
            raise _under_way(lock)

    def status(self, job: str, run_id: str | None) -> dict[str, Any]:
        """The answer of a run as far as it has come; of the last one, unless it is named.

        Raises NoSuchRun.
        """
        lock = self._get(job, "lock") or {}
        id_ = run_id or lock.get("run", {}).get("S")
        row = self._get(job, f"run#{id_}") if id_ else None
        if not row:
            raise NoSuchRun(f"no run {id_!r} of {job!r}" if id_ else f"{job!r} had no run yet")
        answer: dict[str, Any] = json.loads(row["answer"]["S"])
        answer |= {"started_at": row["started_at"]["S"], "updated_at": row["updated_at"]["S"]}
        if row["running"]["BOOL"]:
            has_lock = lock.get("run", {}).get("S") == id_
            alive = has_lock and int(lock["until"]["N"]) >= time.time() * 1000
            answer |= {
                "complete": False,
                "incomplete": "running"
                if alive
                else "it was killed; its messages are in the queues: give the event once more",
            }
        return answer

    def _unlock(self, run: Run) -> None:
        with suppress(RunUnderWay):  # its lock had lapsed, and another has it
            self._lock(run, "run = :run", until=0)

    def _lock(self, run: Run, condition: str, until: int | None = None) -> None:
        now = int(time.time() * 1000)
        end = now + int(self._lease_seconds * 1000) if until is None else until
        values = {":run": {"S": run.id}, ":until": {"N": str(end)}, ":hop": {"N": str(run.hop)}}
        if ":now" in condition:
            values[":now"] = {"N": str(now)}
        try:
            self._dynamodb.update_item(
                TableName=self._table,
                Key=_key(run.job, "lock"),
                UpdateExpression="SET run = :run, #until = :until, hop = :hop",
                ConditionExpression=condition,
                ExpressionAttributeNames={"#until": "until"},
                ExpressionAttributeValues=values,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if not aws_errors.is_condition_failure(error):
                raise
            lock: Any = error.response.get("Item", {})
            raise _under_way(lock) from None

    def _get(self, job: str, record: str) -> dict[str, Any] | None:
        answer = self._dynamodb.get_item(
            TableName=self._table, Key=_key(job, record), ConsistentRead=True
        )
        return answer.get("Item")


def _key(job: str, record: str) -> dict[str, Any]:
    return {"id": {"S": f"replay:{job}"}, "record": {"S": record}}


def _under_way(lock: Mapping[str, Any]) -> RunUnderWay:
    id_ = lock.get("run", {}).get("S", "unknown")
    return RunUnderWay(
        f"run {id_} has this dead-letter queue. Wait for it, or see how far it is: "
        f'"action": "status", "run": "{id_}"'
    )

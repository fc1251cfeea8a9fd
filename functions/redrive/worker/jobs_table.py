"""What the jobs table knows of a message: the attempts that failed, why, and whether it is dead.

One row for each message that failed, under its job's id; a job that succeeds at once has none.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from botocore.exceptions import ClientError

from redrive import aws_errors
from redrive.message import Cause

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# As long as a dead letter can be replayed: fourteen days, and the four in its queue before.
_REMEMBER_SECONDS: Final = 18 * 24 * 3600
# BatchGetItem takes a hundred keys; a message has two, its row and its job's idempotency record.
_MESSAGES_A_READ: Final = 50
_READS: Final = 3  # of what DynamoDB leaves unprocessed when it is busy
_PAUSE_SECONDS: Final = 0.1

Item: TypeAlias = dict[str, Any]
# The partition and, in the jobs table, the sort key.
Name: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What came before this delivery of a message.

    `dying` is its cause where the job has failed for good, and only its dead letter was refused.
    `unfinished_kills` is None, unless the message's last run has not ended: then it is how many
    runs before that one were killed. `cause` is that of its death or of its last attempt, `replays`
    is None where no row tells it. `succeeded` says that the job is done, by whichever message.
    """

    attempts: int = 0
    dead: bool = False
    dying: Cause | None = None
    unfinished_kills: int | None = None
    cause: Cause | None = None
    replays: int | None = None
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A message whose history is wanted: its job, itself, and its job's idempotency record."""

    job_id: str
    message_id: str
    record_id: str


class JobsTable:
    """The rows of one job's messages."""

    def __init__(self, jobs_table: str, idempotency_table: str, client: "DynamoDBClient") -> None:
        self._jobs, self._idempotency, self._client = jobs_table, idempotency_table, client

    def read(self, asked: Sequence[Asked]) -> dict[str, History]:
        """The histories by message id, without those that DynamoDB was too busy to give.

        Raises what boto3 raises.
        """
        found: dict[str, History] = {}
        for start in range(0, len(asked), _MESSAGES_A_READ):
            found |= self._read(asked[start : start + _MESSAGES_A_READ])
        return found

    def count_attempt(self, job_id: str, message_id: str, cause: Cause) -> None:
        """Writes that attempt number `cause.attempts` of the message has failed, and why.

        A count under a condition, since botocore repeats a call whose answer came too late.
        """
        try:
            self._client.update_item(
                TableName=self._jobs,
                Key=_row_key(job_id, message_id),
                UpdateExpression=(
                    "SET attempts = :attempts, cause = :cause, expiration = :expiration"
                ),
                ConditionExpression="attribute_not_exists(attempts) OR attempts < :attempts",
                ExpressionAttributeValues=_died(cause),
            )
        except ClientError as error:
            if not aws_errors.is_condition_failure(error):
                raise

    def mark_dying(self, job_id: str, message_id: str, cause: Cause) -> None:
        """Writes that the message is to be dead-lettered, which was refused: not to be run
        again.
        """
        self._update_unless_dead(
            job_id,
            message_id,
            UpdateExpression=(
                "SET dying = :true, attempts = :attempts, cause = :cause, expiration = :expiration"
            ),
            ExpressionAttributeValues={":true": {"BOOL": True}, **_died(cause)},
        )

    def mark_dead(
        self,
        job_id: str,
        message_id: str,
        cause: Cause,
        *,
        replays: int,
        force: int,
        copy_id: str | None = None,
    ) -> None:
        """Writes that the message has a confirmed copy in the dead-letter queue, and why.

        What the row says of its replays stands: a replayed message may have had no room for it. A
        copy that has none either finds its row under its own id, `copy_id`.
        """
        row = self._bury(job_id, message_id, cause, replays=replays, force=force, copy_id=copy_id)
        if row and copy_id is not None:
            counted = int(row["replays"]["N"])
            self._bury(job_id, copy_id, cause, replays=counted, force=force, copy_id=None)

    def _bury(
        self,
        job_id: str,
        message_id: str,
        cause: Cause,
        *,
        replays: int,
        force: int,
        copy_id: str | None,
    ) -> Item | None:
        return self._update_unless_dead(
            job_id,
            message_id,
            UpdateExpression=(
                "SET dead = :true, attempts = :attempts, cause = :cause, expiration = :expiration, "
                "replays = if_not_exists(replays, :replays), #force = :force, copy_id = :copy "
                "REMOVE dying"
            ),
            ExpressionAttributeNames={"#force": "force"},
            ExpressionAttributeValues={
                ":true": {"BOOL": True},
                **_died(cause),
                ":replays": {"N": str(replays)},
                ":force": {"N": str(force)},
                ":copy": {"S": copy_id or ""},
            },
            ReturnValues="ALL_NEW",
        )

    def count_replay(self, job_id: str, message_id: str, replays: int) -> None:
        """Writes how often a message was replayed that has no room to say it itself.

        It may have died already: then its copy has a row too, see `mark_dead`.
        """
        row = self._client.update_item(
            TableName=self._jobs,
            Key=_row_key(job_id, message_id),
            UpdateExpression="SET replays = :replays, expiration = :expiration",
            ExpressionAttributeValues={
                ":replays": {"N": str(replays)},
                ":expiration": _expiration(),
            },
            ReturnValues="ALL_NEW",
        )["Attributes"]
        if copy_id := row.get("copy_id", {}).get("S"):
            self.count_replay(job_id, copy_id, replays)

    def _update_unless_dead(self, job_id: str, message_id: str, **update: Any) -> Item | None:
        """Another delivery of it may have had its dead letter sent: the first cause is the true
        one.
        """
        try:
            return self._client.update_item(
                TableName=self._jobs,
                Key=_row_key(job_id, message_id),
                ConditionExpression="attribute_not_exists(dead)",
                **update,
            ).get("Attributes")
        except ClientError as error:
            if not aws_errors.is_condition_failure(error):
                raise
        return None

    def _read(self, asked: Sequence[Asked]) -> dict[str, History]:
        # Two messages of one job share its record, one message may be there twice, and no key may
        # stand twice.
        rows = {_name(key): key for key in (_row_key(one.job_id, one.message_id) for one in asked)}
        records = {_name(key): key for key in (_record_key(one.record_id) for one in asked)}
        found, unread = self._get({self._jobs: rows.values(), self._idempotency: records.values()})
        histories = {}
        for one in asked:
            row = _name(_row_key(one.job_id, one.message_id))
            record = _name(_record_key(one.record_id))
            if row in unread or record in unread:
                continue
            # A row that another version wrote keeps its own message back, not the whole batch.
            with suppress(TypeError, ValueError, KeyError):
                histories[one.message_id] = _history(
                    found.get(row, {}), found.get(record, {}), one.message_id
                )
        return histories

    def _get(self, keys: Mapping[str, Iterable[Item]]) -> tuple[dict[Name, Item], set[Name]]:
        """The items, and which of the keys DynamoDB left unread."""
        found: dict[Name, Item] = {}
        wanted: Any = {
            table: {"Keys": list(of_table), "ConsistentRead": True}
            for table, of_table in keys.items()
        }
        for read in range(_READS):
            time.sleep(_PAUSE_SECONDS * read)
            answer = self._client.batch_get_item(RequestItems=wanted)
            for items in answer["Responses"].values():
                found |= {_name(item): item for item in items}
            wanted = answer.get("UnprocessedKeys", {})
            if not wanted:
                break
        return found, {_name(key) for request in wanted.values() for key in request["Keys"]}


def _died(cause: Cause) -> Item:
    """The values of an attempt that failed, the last one or not."""
    return {
        ":attempts": {"N": str(cause.attempts)},
        ":cause": {"S": json.dumps(asdict(cause))},
        ":expiration": _expiration(),
    }


def _expiration() -> Item:
    return {"N": str(int(time.time()) + _REMEMBER_SECONDS)}


def _row_key(job_id: str, message_id: str) -> Item:
    return {"id": {"S": job_id}, "record": {"S": f"message#{message_id}"}}


def _record_key(record_id: str) -> Item:
    return {"id": {"S": record_id}}


def _name(item: Item) -> Name:
    """Of an item or a key, of either table."""
    return item["id"]["S"], item["record"]["S"] if "record" in item else None


def _history(row: Item, record: Item, message_id: str) -> History:
    unfinished = (
        record.get("status", {}).get("S") == "INPROGRESS"
        and "ended" not in record
        and record.get("message_id", {}).get("S") == message_id
    )
    killed = record.get("killed", {}).get("M", {}).get(message_id)
    cause = Cause(**json.loads(row["cause"]["S"])) if "cause" in row else None
    return History(
        attempts=int(row.get("attempts", {}).get("N", 0)),
        dead=bool(row.get("dead", {}).get("BOOL")),
        dying=cause if "dying" in row else None,
        cause=cause,
        replays=int(row["replays"]["N"]) if "replays" in row else None,
        # DynamoDB deletes an expired record when it comes to it, which may be days later.
        succeeded=record.get("status", {}).get("S") == "COMPLETED"
        and int(record["expiration"]["N"]) > time.time(),
        unfinished_kills=(
            int(record.get("kills", {}).get("N", 0))
            if unfinished
            else int(killed["N"])
            if killed
            else None
        ),
    )

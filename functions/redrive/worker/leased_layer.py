"""Powertools' DynamoDB layer, with claims that end with a lease and writes that only their owner
makes.

Powertools marks a run as in progress until the Lambda deadline, so that a killed run would keep its
successor out for up to fifteen minutes; and it updates and deletes whatever it finds, so that a run
that comes back from a freeze could undo what its successor has finished. Here a claim lasts for a
lease, which is renewed, and every later write asks that the claim is still the run's own.

The hooks overridden here are not Powertools' public interface: the tests of this module say what
they rely on, and fail where an upgrade moves it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyItemAlreadyExistsError,
)
from botocore.exceptions import ClientError

from redrive import aws_errors
from redrive.errors import Killed
from redrive.worker.group_commit import GroupCommit
from redrive.worker.job import LambdaContext

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord
    from mypy_boto3_dynamodb import DynamoDBClient

Item: TypeAlias = dict[str, Any]

_IN_PROGRESS: Final = "INPROGRESS"
_ENDED: Final[Item] = {"ended": {"BOOL": True}, "in_progress_expiration": {"N": "0"}}
_MESSAGES_REMEMBERED: Final = 25  # of one job, killed in turn


class LeaseLost(Exception):
    """Another run has taken the job over; what this one did is no longer its to record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRun:
    """A run that ended without a word. `kills` counts the runs of this message that ended so,
    `killed` those of the job's other messages. `ended`: it did say a word, and was no kill.
    """

    kills: int
    killed: dict[str, int]
    ended: bool
    request_id: str
    log_stream: str


class LeasedLayer(DynamoDBPersistenceLayer):
    """One run at a time; `begin` comes before each."""

    def __init__(
        self,
        *,
        table_name: str,
        client: "DynamoDBClient",
        max_kills: int,
        group: GroupCommit | None = None,
    ) -> None:
        super().__init__(table_name=table_name, boto3_client=client)
        self._max_kills, self._group = max_kills, group
        self._claimed: str | None = None

    def begin(self, message_id: str, context: LambdaContext, attempt: int = 1) -> None:
        """Names the run that comes next."""
        self._owner = uuid4().hex
        self._message_id, self._context, self._attempt = message_id, context, attempt
        self._claimed = None
        self._others: dict[str, int] = {}
        self.dead_run: DeadRun | None = None
        """The run that was taken over from, if there was one."""
        self.busy_until = 0.0
        """When the claim ends that kept this run out; milliseconds since the epoch."""

    def renew(self, until: float) -> None:
        """Lengthens the claim, if there is one, until so many milliseconds since the epoch.

        Raises LeaseLost, and what boto3 raises. May be called from another thread than the run's.
        """
        claimed = self._claimed
        if claimed is not None:
            try:
                self._update_own(claimed, {"in_progress_expiration": {"N": str(int(until))}})
            except LeaseLost:
                if self._claimed == claimed:  # else the run has ended, and given it back
                    raise

    def forgetting(self, key: str) -> Callable[[], None]:
        """A call that removes this run's claim, also when the layer has gone on to other runs.

        The kills of the job's other messages stay in the record.
        """
        if self._others:
            ended = {**_ENDED, "message_id": {"S": ""}, "kills": {"N": "0"}}
            return partial(self._update_own, key, ended, owner=self._owner)
        return partial(self._delete_own, key, self._owner)

    def end(self, key: str) -> None:
        """Says that this run has ended, where its claim stands although a call for it failed.

        Else the claim would lapse, and look like that of a run that was killed. Raises what boto3
        raises.
        """
        self._claimed = None
        with suppress(LeaseLost):
            self._update_own(key, _ENDED)

    # --- Powertools' hooks ------------------------------------------------------------------------

    def _put_record(self, data_record: "DataRecord") -> None:
        if self._group and self._group.insert(self._claim_item(data_record, kills=0)):
            self._claimed = data_record.idempotency_key
            return
        old = self._claim(
            data_record,
            kills=0,
            ConditionExpression="attribute_not_exists(id) OR expiration < :now",
            ExpressionAttributeValues={":now": {"N": str(int(time.time()))}},
        )
        if old and not self._is_own(old) and (dead_run := self._dead_run(old)):
            old = self._take_over(data_record, old, dead_run)
        if old and not self._is_own(old):
            self.busy_until = _number(old, "in_progress_expiration")
            raise IdempotencyItemAlreadyExistsError(old_data_record=self._item_to_data_record(old))
        # Not refused; or by our own claim, which botocore repeated since its answer came too late.
        self._claimed = data_record.idempotency_key

    def _update_record(self, data_record: "DataRecord") -> None:
        values = {
            "data": {"S": data_record.response_data},
            "expiration": {"N": str(data_record.expiry_timestamp)},
            "status": {"S": data_record.status},
        }
        key = data_record.idempotency_key
        if not (self._group and self._group.update_own(key, self._owner, values)):
            self._update_own(key, values)

    def _delete_record(self, data_record: "DataRecord") -> None:
        self._claimed = None
        self._delete_own(data_record.idempotency_key, self._owner)

    # --- their calls ------------------------------------------------------------------------------

    def _claim(
        self,
        data_record: "DataRecord",
        kills: int,
        killed: dict[str, int] | None = None,
        **condition: Any,
    ) -> Item | None:
        """Puts the record in progress. Returns the one that stands against the condition, if
        any.
        """
        try:
            self.client.put_item(
                TableName=self.table_name,
                Item=self._claim_item(data_record, kills, killed),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **condition,
            )
        except ClientError as error:
            # Without an item, what stood against it is gone already: the next delivery may claim.
            if aws_errors.is_condition_failure(error) and "Item" in error.response:
                return error.response["Item"]  # type: ignore[typeddict-item, no-any-return]
            raise
        return None

    def _claim_item(
        self, data_record: "DataRecord", kills: int, killed: dict[str, int] | None = None
    ) -> Item:
        return {
            **self._get_key(data_record.idempotency_key),
            "status": {"S": data_record.status},
            "expiration": {"N": str(data_record.expiry_timestamp)},
            "in_progress_expiration": {"N": str(data_record.in_progress_expiry_timestamp)},
            "owner": {"S": self._owner},
            "message_id": {"S": self._message_id},
            "kills": {"N": str(kills)},
            "attempt": {"N": str(self._attempt)},
            "killed": {"M": {id_: {"N": str(count)} for id_, count in (killed or {}).items()}},
            "request_id": {"S": self._context.aws_request_id},
            "log_stream": {"S": self._context.log_stream_name},
        }

    def _take_over(self, data_record: "DataRecord", old: Item, dead_run: DeadRun) -> Item | None:
        """Claims what a dead run left. Of several successors exactly one gets it."""
        standing = self._claim(
            data_record,
            kills=dead_run.kills,
            killed=dead_run.killed,
            # Neither renewed nor taken over since it was read.
            ConditionExpression="in_progress_expiration = :until AND #status = :in_progress",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={
                ":until": old["in_progress_expiration"],
                ":in_progress": {"S": _IN_PROGRESS},
            },
        )
        if standing is None or self._is_own(standing):
            self._others = dead_run.killed
            if not dead_run.ended:
                self.dead_run = dead_run
            if dead_run.kills >= self._max_kills:
                raise Killed(dead_run.kills, dead_run.request_id, dead_run.log_stream)
        return standing

    def _dead_run(self, old: Item) -> DeadRun | None:
        in_progress = old["status"]["S"] == _IN_PROGRESS
        if not in_progress or _number(old, "in_progress_expiration") >= time.time() * 1000:
            return None
        killed = {id_: int(count["N"]) for id_, count in old.get("killed", {}).get("M", {}).items()}
        message_id = old.get("message_id", {}).get("S", "")
        # A run whose attempt was counted since has failed; only its claim could not be removed.
        counted = message_id == self._message_id and _number(old, "attempt") < self._attempt
        ended = counted or "ended" in old
        if message_id:
            killed[message_id] = int(_number(old, "kills")) + (not ended)
        return DeadRun(
            kills=killed.pop(self._message_id, 0),
            killed=dict(list(killed.items())[-_MESSAGES_REMEMBERED:]),
            ended=ended,
            request_id=old.get("request_id", {}).get("S", ""),
            log_stream=old.get("log_stream", {}).get("S", ""),
        )

    def _is_own(self, item: Item) -> bool:
        return bool(item.get("owner", {}).get("S") == self._owner)

    def _delete_own(self, key: str, owner: str) -> None:
        with _lease_lost_where_refused(), _gone_where_repeated():
            self.client.delete_item(
                TableName=self.table_name,
                Key=self._get_key(key),
                ConditionExpression="#owner = :owner",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                ExpressionAttributeNames={"#owner": "owner"},
                ExpressionAttributeValues={":owner": {"S": owner}},
            )

    def _update_own(self, key: str, values: Item, owner: str | None = None) -> None:
        with _lease_lost_where_refused():
            self.client.update_item(
                TableName=self.table_name,
                Key=self._get_key(key),
                UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
                ConditionExpression="#owner = :owner",
                ExpressionAttributeNames={f"#{name}": name for name in ("owner", *values)},
                ExpressionAttributeValues={
                    ":owner": {"S": owner or self._owner},
                    **{f":{name}": value for name, value in values.items()},
                },
            )


@contextmanager
def _lease_lost_where_refused() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if aws_errors.is_condition_failure(error):
            raise LeaseLost from error
        raise


@contextmanager
def _gone_where_repeated() -> Iterator[None]:
    """Botocore repeats a delete whose answer came too late; the second finds nothing."""
    try:
        yield
    except ClientError as error:
        repeats = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)
        if not (
            aws_errors.is_condition_failure(error) and repeats and not error.response.get("Item")
        ):
            raise


def _number(item: Item, name: str) -> float:
    return float(item.get(name, {}).get("N", 0))

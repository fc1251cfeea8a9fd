"""Claims and completions of a batch's jobs, many in one request.

Each write of the idempotency table is a round trip, and each call of botocore costs CPU, of which a
small Lambda has little: a batch of ten that claims and completes one by one spends its time on
calls. Here the threads of a batch put their writes together, and one of them sends them all by one
BatchExecuteStatement: the same writes at the same price, a tenth of the requests.

Every rule stays where it was. A write that DynamoDB does not take just so (the job is known
already, the claim is another's, the table is busy) is not judged here: its thread makes it again,
alone, by the layer's own call.
"""

import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Item: TypeAlias = dict[str, Any]

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html
_STATEMENTS: Final = 25
# The first one waits no longer for the next: less than a round trip.
_WAIT_SECONDS: Final = 0.003


class GroupCommit:
    """Shared by the threads of a batch; outlives batches. `threads` is how many there are."""

    def __init__(self, client: "DynamoDBClient", table_name: str, threads: int) -> None:
        self._client, self._table, self._threads = client, table_name, threads
        self._changed = threading.Condition()
        self._lanes = 0
        self._forming: _Group | None = None

    def expect(self, lanes: int) -> None:
        """So many runs come, one after the other on each thread: `ended` says when one is over."""
        with self._changed:
            self._lanes = lanes

    def ended(self) -> None:
        """One run less to wait for."""
        with self._changed:
            self._lanes -= 1
            self._changed.notify_all()

    def insert(self, item: Item) -> bool:
        """Puts a new item. False: it was not put, or not for certain; make the call alone."""
        names = ", ".join(f"'{name}': ?" for name in item)
        return self._join(f'INSERT INTO "{self._table}" VALUE {{{names}}}', list(item.values()))

    def update_own(self, id_: str, owner: str, values: Item) -> bool:
        """Sets values of an item that this owner still has. False as for `insert`."""
        changes = " ".join(f'SET "{name}" = ?' for name in values)
        return self._join(
            f'UPDATE "{self._table}" {changes} WHERE "id" = ? AND "owner" = ?',
            [*values.values(), {"S": id_}, {"S": owner}],
        )

    def _join(self, statement: str, parameters: list[Item]) -> bool:
        with self._changed:
            group = self._forming
            leads = group is None
            if group is None:
                group = self._forming = _Group()
            place = group.add({"Statement": statement, "Parameters": parameters})
            if group.is_full:
                self._forming = None
            self._changed.notify_all()
            if leads:
                self._gather(group)
                if self._forming is group:
                    self._forming = None
        if leads:
            group.send(self._client)
        return group.took(place)

    def _gather(self, group: "_Group") -> None:
        """Waits for the others, as long as one comes soon after another."""
        size, until = group.size, time.monotonic() + _WAIT_SECONDS
        while not self._is_complete(group) and (left := until - time.monotonic()) > 0:
            self._changed.wait(left)
            if group.size > size:
                size, until = group.size, time.monotonic() + _WAIT_SECONDS

    def _is_complete(self, group: "_Group") -> bool:
        return group.is_full or group.size >= min(self._lanes, self._threads)


class _Group:
    """The statements of one request, and which of them DynamoDB took."""

    def __init__(self) -> None:
        self._statements: list[Any] = []
        self._took: list[bool] = []
        self._answered = threading.Event()

    @property
    def size(self) -> int:
        return len(self._statements)

    @property
    def is_full(self) -> bool:
        return self.size == _STATEMENTS

    def add(self, statement: Item) -> int:
        """Returns the statement's place."""
        self._statements.append(statement)
        return self.size - 1

    def send(self, client: "DynamoDBClient") -> None:
        try:
            if self.size > 1:  # one alone is better made by its own call
                answer = client.batch_execute_statement(Statements=self._statements)
                self._took = ["Error" not in response for response in answer["Responses"]]
        except Exception:  # noqa: S110 - each makes its call alone, and meets the error there
            pass
        finally:
            self._answered.set()

    def took(self, place: int) -> bool:
        self._answered.wait()
        return place < len(self._took) and self._took[place]

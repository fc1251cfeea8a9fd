"""What a run has seen and done: the counts and examples of its answer."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

from redrive.message import iso_time
from replay.letters import DeadLetter

# A Lambda answers with 6 MB at most, and a row of DynamoDB holds 400 KB.
_MOST_MESSAGES: Final = 100
_MOST_ERRORS: Final = 100
_MOST_CAUSES: Final = 200
_MOST_PAYLOAD_BYTES: Final = 2_000_000
_LONGEST_ERROR: Final = 300


@dataclass(slots=True)
class _CauseCount:
    cause: str
    fingerprint: str | None
    count: int = 0
    first: float | None = None
    last: float | None = None

    def add(self, failed_at: float | None) -> None:
        self.count += 1
        if failed_at is not None:
            self.first = min(self.first or failed_at, failed_at)
            self.last = max(self.last or failed_at, failed_at)


@dataclass(slots=True)
class Report:
    """Threads add to it. `removed` are the letters that are no longer in the queue."""

    show_payload: bool = False
    scanned: int = 0
    matched: int = 0
    replayed: int = 0
    purged: int = 0
    succeeded: int = 0
    replay_limit: int = 0
    unknown_time: int = 0
    failed: int = 0
    removed: int = 0
    waiting: int = 0
    found: set[str] = field(default_factory=set)
    errors: list[dict[str, str]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    _causes: dict[tuple[str, str | None], _CauseCount] = field(default_factory=dict)
    _removed_causes: dict[tuple[str, str | None], _CauseCount] = field(default_factory=dict)
    _described: set[str] = field(default_factory=set)
    _removed_ids: set[str] = field(default_factory=set)
    _payload_bytes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def add_scanned(self, count: int = 1) -> None:
        with self._lock:
            self.scanned += count

    def add_waiting(self, count: int) -> None:
        """What a replay would send."""
        with self._lock:
            self.waiting += count

    def add_found(self, ids: Iterable[str]) -> None:
        """Which of the ids that were asked for are there."""
        with self._lock:
            self.found.update(ids)

    def add_unknown_time(self) -> None:
        with self._lock:
            self.unknown_time += 1

    def add_match(self, letter: DeadLetter) -> None:
        with self._lock:
            self.matched += 1
            _count(self._causes, letter)
            if len(self.messages) < _MOST_MESSAGES:
                self.messages.append(self._describe(letter))
                self._described.add(letter.original_id)

    def add_skipped(self) -> None:
        """What a replay leaves in the queue, or would, since it was replayed too often."""
        with self._lock:
            self.replay_limit += 1

    def add_succeeded(self, letter: DeadLetter, *, removed: bool) -> None:
        """What is not replayed since its job is done."""
        with self._lock:
            self.succeeded += 1
            if removed:
                self._remove(letter)

    def add_replayed(self, letter: DeadLetter) -> None:
        with self._lock:
            self.replayed += 1
            self._remove(letter)

    def add_purged(self, letter: DeadLetter) -> None:
        with self._lock:
            self.purged += 1
            self._remove(letter)

    def add_error(self, id_: str, error: str) -> None:
        with self._lock:
            self.failed += 1
            if len(self.errors) < _MOST_ERRORS:
                self.errors.append({"id": id_, "error": error[:_LONGEST_ERROR]})

    def _remove(self, letter: DeadLetter) -> None:
        self.removed += 1
        if letter.original_id in self._described:
            self._removed_ids.add(letter.original_id)
        _count(self._removed_causes, letter)

    def _describe(self, letter: DeadLetter) -> dict[str, Any]:
        told: dict[str, Any] = {
            "id": letter.job_id,
            "message_id": letter.original_id,
            "cause": letter.cause,
            "attempts": letter.attempts,
            "sent_at": _iso(letter.sent_at),
            "failed_at": _iso(letter.failed_at),
            "replays": letter.replays,
        }
        if self.show_payload:
            body = letter.message.body
            size = len(json.dumps(letter.payload or body))
            if self._payload_bytes + size > _MOST_PAYLOAD_BYTES:
                told["payload"] = f"left out: {size} bytes, and an answer holds 6 MB"
            else:
                self._payload_bytes += size
                told["payload"] = letter.payload or body
        return told

    # --- as JSON ----------------------------------------------------------------------------------

    def answer(self) -> dict[str, Any]:
        """The part of an answer that says what was seen and done."""
        with self._lock:
            causes = sorted(self._causes.values(), key=lambda one: -one.count)
            return {
                "scanned": self.scanned,
                "matched": self.matched,
                "replayed": self.replayed,
                "purged": self.purged,
                "skipped": {
                    "already_succeeded": self.succeeded,
                    "replay_limit": self.replay_limit,
                },
                "unknown_time": self.unknown_time,
                "failed": self.failed,
                "errors": list(self.errors),
                "causes": [
                    {
                        "cause": one.cause,
                        "fingerprint": one.fingerprint,
                        "count": one.count,
                        "first": _iso(one.first),
                        "last": _iso(one.last),
                    }
                    for one in causes[:_MOST_CAUSES]
                ],
                "messages": list(self.messages),
            }

    def state(self) -> str:
        """What the run's next part must know: only what it will not see in the queue again."""
        with self._lock:
            return json.dumps(
                {
                    "replayed": self.replayed,
                    "purged": self.purged,
                    "succeeded": self.removed - self.replayed - self.purged,
                    "removed": self.removed,
                    "failed": self.failed,
                    "errors": self.errors,
                    "found": sorted(self.found),
                    "messages": list(filter(self._is_removed, without_payloads(self.messages))),
                    "causes": [
                        [one.cause, one.fingerprint, one.count, one.first, one.last]
                        for one in list(self._removed_causes.values())[:_MOST_CAUSES]
                    ],
                }
            )

    def begin_again(self) -> None:
        """Forgets what it will see in the queue again: a second scan begins."""
        with self._lock:
            self.scanned = self.matched = self.removed
            self.succeeded = self.removed - self.replayed - self.purged
            self.replay_limit = self.unknown_time = 0
            self.messages = [one for one in self.messages if self._is_removed(one)]
            self._causes = {kind: replace(one) for kind, one in self._removed_causes.items()}

    def _is_removed(self, message: Mapping[str, Any]) -> bool:
        return message["message_id"] in self._removed_ids

    @classmethod
    def resumed(cls, state: str, *, show_payload: bool) -> "Report":
        """The report of a run's next part."""
        told: Mapping[str, Any] = json.loads(state)
        removed = int(told["removed"])
        messages = list(told["messages"])
        causes = {(one[0], one[1]): _CauseCount(*one) for one in told["causes"]}
        removed_causes = {(one[0], one[1]): _CauseCount(*one) for one in told["causes"]}
        return cls(
            show_payload=show_payload,
            scanned=removed,
            matched=removed,
            replayed=int(told["replayed"]),
            purged=int(told["purged"]),
            succeeded=int(told["succeeded"]),
            removed=removed,
            failed=int(told["failed"]),
            found=set(told["found"]),
            errors=list(told["errors"]),
            messages=messages,
            _described={one["message_id"] for one in messages},
            _removed_ids={one["message_id"] for one in messages},
            _causes=causes,
            _removed_causes=removed_causes,
        )


def without_payloads(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For rows and logs, which hold no people's data."""
    return [{name: one[name] for name in one if name != "payload"} for one in messages]


def _count(causes: dict[tuple[str, str | None], _CauseCount], letter: DeadLetter) -> None:
    kind = letter.cause, letter.fingerprint
    causes.setdefault(kind, _CauseCount(*kind)).add(letter.failed_at)


def _iso(moment: float | None) -> str | None:
    return None if moment is None else iso_time(moment)

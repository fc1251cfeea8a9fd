"""One action on one dead-letter queue: list, replay or purge, as far as the time allows."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING, Final

from redrive import aws_errors
from redrive.discovery import Destination
from redrive.worker.idempotency import record_id
from redrive.worker.jobs_table import Asked, JobsTable
from replay.canary import Canary, await_success
from replay.confirm import Confirmed
from replay.event import Request
from replay.filters import by_itself, by_tables, lacks_time
from replay.halt import Halt
from replay.letters import DeadLetter, Received, asked_about, with_history, without_body
from replay.pace import Pace, Quota
from replay.report import Report
from replay.resend import Resend
from replay.scan import Scan, chunks

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

THREADS: Final = 16
_RATE_OF_A_THREAD: Final = 100
_PURGED_AT_ONCE: Final = 100


class TooMany(Exception):
    """More would be purged than was confirmed."""


class Operation:
    """Changes `report` as it goes; `state` is what a next hop must know of this one.

    `moment` is the run's start, in milliseconds: what died later is not meant, or a job that dies
    again at once would be replayed again at once.
    """

    def __init__(
        self,
        request: Request,
        destination: Destination,
        *,
        sqs: "SQSClient",
        table: JobsTable,
        halt: Halt,
        hold_seconds: float,
        moment: int,
        confirmed: Confirmed | None = None,
        state: str | None = None,
    ) -> None:
        self._request, self._destination = request, destination
        self._sqs, self._table, self._halt = sqs, table, halt
        self._hold_seconds = hold_seconds
        told = json.loads(state) if state else {}
        if told.get("confirmed"):
            confirmed = Confirmed(**told["confirmed"])
        self._confirmed = confirmed
        self._moment = min(moment, confirmed.moment) if confirmed else moment
        self.report = (
            Report.resumed(told["report"], show_payload=request.show_payload)
            if "report" in told
            else Report(show_payload=request.show_payload)
        )
        self._canary = Canary.parse(told["canary"]) if told.get("canary") else None
        self._canary_passed = bool(told.get("canary_passed"))
        self._sent: list[Asked] = []
        self._pace = Pace(request.rate)

    def state(self) -> str:
        """For `Operation` in the next hop."""
        return json.dumps(
            {
                "report": self.report.state(),
                "canary": self._canary.render() if self._canary else None,
                "canary_passed": self._canary_passed,
                "confirmed": asdict(self._confirmed) if self._confirmed else None,
            }
        )

    def run(self) -> None:
        """Does it. Where it is not done to the end, `halt.reason` says why.

        Raises TooMany, and what boto3 raises of a call that is not about single messages.
        """
        request = self._request
        if request.action != "replay" or request.only_reads:
            self._scan(None)
            return
        if request.canary and not self._canary_passed:
            if self._canary is None:
                first = min(request.canary, request.limit or request.canary)
                self._scan(first)
                self._canary = Canary(tuple(self._sent), time.time())
            await_success(self._canary, self._table, self._halt)
            if self._halt.stopped:
                return
            self._canary_passed = True
            self.report = Report.resumed(self.report.state(), show_payload=request.show_payload)
        left = request.limit and request.limit - self.report.replayed
        if left != 0:
            self._scan(left)

    # --- one scan ---------------------------------------------------------------------------------

    def _scan(self, limit: int | None) -> None:
        self._quota = Quota(limit)
        self._lock = Lock()
        self._seen: set[tuple[str, int]] = set()
        self._copies: list[tuple[tuple[str, int], str]] = []
        self._gone: set[tuple[str, int]] = set()
        self._to_purge: list[DeadLetter] = []
        scan = Scan(
            self._sqs,
            self._destination.dead_letter_queue_url,
            self._halt,
            hold_seconds=self._hold_seconds,
            # A slow replay needs few.
            most_threads=min(THREADS, 1 + int(self._request.rate or 10**9) // _RATE_OF_A_THREAD),
        )
        resend = Resend(
            self._sqs,
            self._table,
            fifo=self._destination.fifo,
            force=self._request.force,
            pace=self._pace,
            halt=self._halt,
            on_sent=self._on_sent,
            on_failed=lambda letter, why: self.report.add_error(letter.job_id, why),
        )
        with scan:
            scan.read(lambda received: self._handle(received, scan, resend))
            if (
                not self._halt.stopped
                and self._request.action == "purge"
                and not self._request.only_reads
            ):
                self._purge(scan)
            scan.remove([id_ for copy_of, id_ in self._copies if copy_of in self._gone])
            if not self._halt.stopped and not self._quota.used_up:
                missed = scan.missed()
                if missed:
                    self._halt.stop(missed)

    def _handle(self, handful: Sequence[Received], scan: Scan, resend: Resend) -> None:
        self.report.add_scanned(len(handful))
        matched = self._matching(handful)
        if self._request.action == "purge":
            with self._lock:
                self._to_purge += map(without_body, matched)
            return
        done, waiting = self._apart(matched)
        if self._request.only_reads:
            for letter in done:
                self.report.add_succeeded(letter, removed=False)
            return
        kept = scan.remove(letter.message.id for letter in done)
        self._note_removed(done, kept)
        going = waiting[: self._quota.take(len(waiting))]
        if self._quota.used_up:
            scan.enough()
        sent = resend.send(going)
        kept = scan.remove(letter.message.id for letter in sent)
        for letter in sent:
            if code := kept.get(letter.message.id):
                why = (
                    f"sent, but not deleted: {code}; it may run twice, which its key makes harmless"
                )
                self.report.add_error(letter.job_id, why)

    def _matching(self, handful: Sequence[Received]) -> list[DeadLetter]:
        filters = self._request.filters
        candidates = []
        for one in handful:
            letter, asked = asked_about(one, self._destination)
            if by_itself(letter, filters):
                candidates.append((letter, asked))
        try:
            histories = self._table.read([asked for _, asked in candidates])
        except Exception as error:
            self._halt.stop(f"tables cannot be read: {aws_errors.code(error)}")
            return []
        matched = []
        for letter, asked in candidates:
            history = histories.get(asked.message_id)
            if history is None:
                self.report.add_error(letter.job_id, "its row cannot be read; it stays")
                continue
            known = with_history(letter, history)
            if lacks_time(known, filters):
                self.report.add_unknown_time()
            if not by_tables(known, filters) or self._is_later(known):
                continue
            if self._is_first(known):
                self.report.add_match(known)
                matched.append(known)
        return matched

    def _is_later(self, letter: DeadLetter) -> bool:
        return letter.failed_at is not None and letter.failed_at >= self._moment

    def _is_first(self, letter: DeadLetter) -> bool:
        """Whether no other copy of this death was seen; the copies go where the first goes."""
        with self._lock:
            if letter.copy_of in self._seen:
                self._copies.append((letter.copy_of, letter.message.id))
                return False
            self._seen.add(letter.copy_of)
            return True

    def _apart(self, letters: Sequence[DeadLetter]) -> tuple[list[DeadLetter], list[DeadLetter]]:
        """Those whose job is done already, and those that may be replayed."""
        if self._request.force:
            return [], list(letters)
        done = [letter for letter in letters if letter.succeeded]
        waiting = []
        for letter in letters:
            if letter.succeeded:
                continue
            if letter.replays >= self._destination.max_replays:
                self.report.add_skipped()
            else:
                waiting.append(letter)
        return done, waiting

    def _note_removed(self, done: Sequence[DeadLetter], kept: dict[str, str]) -> None:
        for letter in done:
            code = kept.get(letter.message.id)
            self.report.add_succeeded(letter, removed=not code)
            if code:
                self.report.add_error(letter.job_id, f"not deleted: {code}")
            else:
                with self._lock:
                    self._gone.add(letter.copy_of)

    def _on_sent(self, letter: DeadLetter, message_id: str) -> None:
        self.report.add_replayed(letter)
        with self._lock:
            self._gone.add(letter.copy_of)
            if self._request.canary and self._canary is None:
                self._sent.append(self._asked_about_copy(letter, message_id))

    def _asked_about_copy(self, letter: DeadLetter, message_id: str) -> Asked:
        key = letter.key
        if force := letter.envelope.force + self._request.force:
            key = f"{key}#force{force}"
        return Asked(letter.job_id, message_id, record_id(self._destination.job, key))

    # --- the end of a purge -----------------------------------------------------------------------

    def _purge(self, scan: Scan) -> None:
        confirmed = self._confirmed.count if self._confirmed else 0
        allowed = confirmed - self.report.purged
        if len(self._to_purge) > allowed:
            raise TooMany(
                f"{len(self._to_purge)} match, and {allowed} were confirmed; nothing was deleted"
            )
        for part in chunks(self._to_purge, _PURGED_AT_ONCE):
            if self._halt.stopped:
                return
            kept = scan.remove(letter.message.id for letter in part)
            for letter in part:
                if code := kept.get(letter.message.id):
                    self.report.add_error(letter.job_id, f"not deleted: {code}")
                else:
                    self.report.add_purged(letter)
                    self._gone.add(letter.copy_of)

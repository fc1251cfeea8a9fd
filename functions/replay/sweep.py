"""One scan of a dead-letter queue, and what is done with each letter that is meant."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from redrive import aws_errors
from redrive.discovery import Destination
from redrive.worker.idempotency import record_id
from redrive.worker.jobs_table import Asked, JobsTable
from replay.event import Request
from replay.filters import by_itself, by_tables, lacks_time
from replay.halt import Halt
from replay.letters import (
    DeadLetter,
    Received,
    asked_about,
    forced,
    with_history,
    without_body,
)
from replay.pace import Pace, Quota
from replay.report import Report
from replay.resend import Resend
from replay.scan import Scan, chunks

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_PURGED_AT_ONCE: Final = 100


class TooMany(Exception):
    """More would be purged than was confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is asked for, and by which means it is done.

    `moment`, in milliseconds: what died later is not meant, or a job that dies again at once would
    be replayed again at once.
    """

    request: Request
    destination: Destination
    sqs: "SQSClient"
    table: JobsTable
    halt: Halt
    hold_seconds: float
    moment: int
    pace: Pace

    @property
    def purges(self) -> bool:
        """Whether letters are deleted in the end."""
        return self.request.action == "purge" and not self.request.only_reads


class Sweep:
    """Sends, or collects for the purge, until the queue is read or the task is halted.

    `spend` is told, before they go, how many letters are about to be sent or purged, and may say
    no. `sent` are the new messages, if they are asked for.
    """

    def __init__(
        self,
        task: Task,
        report: Report,
        *,
        quota: Quota,
        spend: Callable[[int], bool],
        remember_sent: bool = False,
    ) -> None:
        self._task, self._report = task, report
        self._quota, self._spend = quota, spend
        self._remember_sent = remember_sent
        self.sent: list[Asked] = []
        self._lock = Lock()
        self._seen: set[tuple[str, int, int]] = set()
        self._copies: list[tuple[tuple[str, int, int], str]] = []
        self._gone: set[tuple[str, int, int]] = set()
        self._to_purge: list[DeadLetter] = []
        self._unread = 0
        self._began = time.time() * 1000

    def run(self, confirmed: int = 0) -> None:
        """Does it. Where it is not done to the end, the halt's reason says why.

        Raises TooMany where more than `confirmed` would be purged, and what boto3 raises of a call
        that is not about single messages.
        """
        task = self._task
        url = task.destination.dead_letter_queue_url
        scan = Scan(task.sqs, url, task.halt, hold_seconds=task.hold_seconds)
        resend = Resend(
            task.sqs,
            task.table,
            fifo=task.destination.fifo,
            force=task.request.force,
            pace=task.pace,
            halt=task.halt,
            on_sent=self._on_sent,
            on_failed=lambda letter, why: self._report.add_error(letter.job_id, why),
        )
        with scan:
            scan.read(lambda received: self._handle(received, scan, resend))
            if task.purges and not task.halt.stopped:
                self._purge(scan, confirmed)
            scan.remove(id_ for copy_of, id_ in self._copies if copy_of in self._gone)
            reason = None if self._quota.used_up else scan.missed()
        if self._unread:
            reason = f"the rows of {self._unread} could not be read; they stay"
        reason = reason or scan.not_given_back
        if reason:
            task.halt.stop(reason)

    # --- a handful --------------------------------------------------------------------------------

    def _handle(self, handful: Sequence[Received], scan: Scan, resend: Resend) -> int:
        """How many of them were there when the scan began."""
        request = self._task.request
        self._report.add_scanned(len(handful))
        candidates = [asked_about(one, self._task.destination) for one in handful]
        were_there = sum(not _is_later(letter, self._began) for letter, _ in candidates)
        in_time = [one for one in candidates if not _is_later(one[0], self._task.moment)]
        matched = self._matching(in_time)
        if request.action == "purge":
            with self._lock:
                self._to_purge += map(without_body, matched)
            return were_there
        done, waiting = self._apart(matched)
        if request.only_reads:
            for letter in done:
                self._report.add_succeeded(letter, removed=False)
            self._report.add_waiting(len(waiting))
            return were_there
        self._remove_done(done, scan)
        going = waiting[: self._quota.take(len(waiting))]
        if self._quota.used_up:
            scan.enough()
        if going and self._spend(len(going)):
            sent = resend.send([forced(one) for one in going] if request.force else going)
            self._remove_sent(sent, scan)
        return were_there

    def _matching(self, candidates: Sequence[tuple[DeadLetter, Asked]]) -> list[DeadLetter]:
        filters = self._task.request.filters
        if filters.ids is not None:
            for letter, _ in candidates:
                self._report.add_found(letter.names & filters.ids)
        candidates = [one for one in candidates if by_itself(one[0], filters)]
        try:
            histories = self._task.table.read([asked for _, asked in candidates])
        except Exception as error:
            self._task.halt.stop(f"tables cannot be read: {aws_errors.code(error)}")
            return []
        matched = []
        for letter, asked in candidates:
            history = histories.get(asked.message_id)
            if history is None:
                self._report.add_error(letter.job_id, "its row cannot be read; it stays")
                with self._lock:
                    self._unread += 1
                continue
            known = with_history(letter, history)
            if lacks_time(known, filters):
                self._report.add_unknown_time()
            if not by_tables(known, filters) or _is_later(known, self._task.moment):
                continue
            if self._is_first(known):
                self._report.add_match(known)
                matched.append(known)
        return matched

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
        if self._task.request.force:
            return [], list(letters)
        done = [letter for letter in letters if letter.succeeded]
        waiting = []
        for letter in letters:
            if letter.succeeded:
                continue
            if letter.replays >= self._task.destination.max_replays:
                self._report.add_skipped()
            else:
                waiting.append(letter)
        return done, waiting

    def _remove_done(self, done: Sequence[DeadLetter], scan: Scan) -> None:
        kept = scan.remove(letter.message.id for letter in done)
        for letter in done:
            code = kept.get(letter.message.id)
            self._report.add_succeeded(letter, removed=not code)
            if code:
                self._report.add_error(letter.job_id, f"not deleted: {code}")
            else:
                self._note_gone(letter)

    def _remove_sent(self, sent: Sequence[DeadLetter], scan: Scan) -> None:
        kept = scan.remove(letter.message.id for letter in sent)
        for letter in sent:
            if code := kept.get(letter.message.id):
                why = f"sent, but not deleted: {code}; if it is sent again, its key makes one run"
                self._report.add_error(letter.job_id, why)

    def _on_sent(self, letter: DeadLetter, message_id: str) -> None:
        self._report.add_replayed(letter)
        self._note_gone(letter)
        if self._remember_sent:
            record = record_id(self._task.destination.job, letter.run_key)
            with self._lock:
                self.sent.append(Asked(letter.job_id, message_id, record))

    def _note_gone(self, letter: DeadLetter) -> None:
        with self._lock:
            self._gone.add(letter.copy_of)

    # --- the end of a purge -----------------------------------------------------------------------

    def _purge(self, scan: Scan, confirmed: int) -> None:
        if len(self._to_purge) > confirmed:
            before = self._report.purged
            raise TooMany(
                f"{len(self._to_purge)} match, and {confirmed} were confirmed; "
                + (f"no more than {before} were deleted" if before else "nothing was deleted")
            )
        for part in chunks(self._to_purge, _PURGED_AT_ONCE):
            if self._task.halt.stopped:
                return
            if not self._spend(len(part)):
                return
            kept = scan.remove(letter.message.id for letter in part)
            for letter in part:
                if code := kept.get(letter.message.id):
                    self._report.add_error(letter.job_id, f"not deleted: {code}")
                else:
                    self._report.add_purged(letter)
                    self._note_gone(letter)


def _is_later(letter: DeadLetter, moment: float) -> bool:
    """Whether it died at this moment or later. One that does not say when it died cannot have died
    before it was sent.
    """
    died = letter.failed_at if letter.failed_at is not None else letter.sent_at
    return died is not None and died >= moment

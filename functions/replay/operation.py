"""One action on one dead-letter queue: list, replay or purge, as far as the time allows."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from threading import Lock

from replay.canary import Canary, await_success
from replay.confirm import Confirmed
from replay.pace import Quota
from replay.report import Report
from replay.sweep import Sweep, Task


class Operation:
    """Changes `report` as it goes; `state` is what a next hop must know of this one.

    `save` is called when that has changed in a way that must outlive a kill: before letters go that
    a limit, a canary or a confirmation counts. Where it returns False, they must not go.
    """

    def __init__(
        self,
        task: Task,
        *,
        confirmed: Confirmed | None = None,
        state: str | None = None,
        save: Callable[[], bool] = lambda: True,
    ) -> None:
        self._task, self._save = task, save
        told = json.loads(state) if state else {}
        self._confirmed = Confirmed(**told["confirmed"]) if told.get("confirmed") else confirmed
        self.report = (
            Report.resumed(told["report"], show_payload=task.request.show_payload)
            if "report" in told
            else Report(show_payload=task.request.show_payload)
        )
        self._spent = int(told.get("spent", 0))
        self._canary_begun = bool(told.get("canary_begun"))
        self._canary_passed = bool(told.get("canary_passed"))
        self._canary_sent = bool(told.get("canary_sent"))
        self._canary = Canary.parse(told["canary"]) if "canary" in told else Canary((), 0)
        self._lock = Lock()

    def state(self) -> str:
        """For `Operation` in the next hop."""
        return json.dumps(
            {
                "report": self.report.state(),
                "spent": self._spent,
                "canary_begun": self._canary_begun,
                "canary_passed": self._canary_passed,
                "canary_sent": self._canary_sent,
                "canary": self._canary.render(),
                "confirmed": asdict(self._confirmed) if self._confirmed else None,
            }
        )

    def run(self) -> None:
        """Does it. Where it is not done to the end, the halt's reason says why.

        Raises TooMany, and what boto3 raises of a call that is not about single messages.
        """
        request = self._task.request
        if request.action != "replay" or request.only_reads:
            self._sweep(None)
            return
        if request.canary and not self._canary_passed:
            self._send_canary(min(request.canary, request.limit or request.canary))
            if not self._task.halt.stopped:
                await_success(self._canary, self._task.table, self._task.halt)
            if self._task.halt.stopped:
                return
            self._canary_passed = True
            self.report.begin_again()
        left = None if request.limit is None else request.limit - self._spent
        if left is None or left > 0:
            self._sweep(left)
        if request.limit is not None and self._spent > self.report.replayed:
            more = self._spent - self.report.replayed
            self._task.halt.stop(
                f"a part of it was killed: it may have sent {more} more, and the limit counts them"
            )

    def _send_canary(self, size: int) -> None:
        """Sends what is left of the canary: all of it, unless the queue has no more."""
        if self._canary_begun:
            self._task.halt.stop(
                "it was killed while its canary went; see what became of those, and start again"
            )
        if self._canary_sent or self._task.halt.stopped:
            return
        failed = self.report.failed
        sweep = self._sweep(size - len(self._canary.jobs), is_canary=True)
        self._canary = Canary((*self._canary.jobs, *sweep.sent), time.time())
        self._canary_begun = False
        self._canary_sent = not self._task.halt.stopped
        if self.report.failed > failed:
            self._task.halt.stop(f"canary: {self.report.failed - failed} could not be done")

    def _sweep(self, limit: int | None, *, is_canary: bool = False) -> Sweep:
        counts = is_canary or limit is not None or self._task.purges
        spent, done = self._spent, self._done

        def spend(count: int) -> bool:
            if not counts:
                return True
            with self._lock:
                self._spent += count
                self._canary_begun = self._canary_begun or is_canary
            return self._save()

        sweep = Sweep(
            self._task, self.report, quota=Quota(limit), spend=spend, remember_sent=is_canary
        )
        confirmed = self._confirmed.count if self._confirmed else 0
        try:
            sweep.run(confirmed - self._spent)
        finally:
            # What could not go has not been spent after all.
            self._spent = spent + self._done - done
        return sweep

    @property
    def _done(self) -> int:
        return self.report.purged if self._task.purges else self.report.replayed

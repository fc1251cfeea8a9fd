"""How many messages may be sent, and how fast."""

import time
from collections.abc import Callable
from threading import Lock

from redrive import limits
from replay.halt import Halt


class Pace:
    """At most `rate` messages a second, by whichever threads; None is as fast as it goes.

    `batch` is how many may be sent at once without passing the rate by much.
    """

    def __init__(self, rate: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self.batch = max(min(int(rate or limits.BATCH_ENTRIES), limits.BATCH_ENTRIES), 1)
        self._next = clock()
        self._lock = Lock()

    def take(self, count: int, halt: Halt) -> bool:
        """Waits until so many may be sent. False where the run was stopped before."""
        if self._rate is None:
            return not halt.stopped
        with self._lock:
            start = max(self._next, self._clock())
            self._next = start + count / self._rate
        return not halt.wait(start - self._clock())


class Quota:
    """At most so many messages in all; None is no limit."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit
        self._lock = Lock()

    def take(self, wanted: int) -> int:
        """How many of those wanted are within the limit."""
        with self._lock:
            if self._left is None:
                return wanted
            taken = min(wanted, self._left)
            self._left -= taken
            return taken

    @property
    def used_up(self) -> bool:
        """Whether nothing is left."""
        return self._left == 0

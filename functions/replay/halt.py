"""When a run must stop, and why."""

import threading
import time
from typing import Final

TIME: Final = "time"
"""The reason of a stop after which the run goes on elsewhere."""


class Halt:
    """Asked by every thread of a run before each step; the first reason counts."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._event = threading.Event()
        self._lock = threading.Lock()
        self.reason: str | None = None

    def stop(self, reason: str | None) -> None:
        """Ends the run; without a reason, because it has done what was asked."""
        with self._lock:
            if not self._event.is_set():
                self.reason = reason
                self._event.set()

    @property
    def stopped(self) -> bool:
        """Whether nothing more may be begun."""
        if not self._event.is_set() and time.monotonic() >= self._deadline:
            self.stop(TIME)
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Waits so long, or until the stop: whether that has come."""
        left = self._deadline - time.monotonic()
        self._event.wait(max(min(seconds, left), 0))
        return self.stopped

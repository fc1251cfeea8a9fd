"""The worker: needs Powertools (`pip install redrive[worker]`). `handler = Worker(run)` is all of
it.
"""

from redrive.worker.job import Job
from redrive.worker.worker import Worker

__all__ = ["Job", "Worker"]

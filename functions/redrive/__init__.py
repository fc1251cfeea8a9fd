"""Redrive: background jobs on AWS. What services install; the worker is in `redrive.worker`.

The modules at this level need boto3 alone and never import `redrive.worker`, which needs Powertools
(`pip install redrive[worker]`).
"""

from typing import TYPE_CHECKING, Any

from redrive.errors import (
    ContinueLater,
    DeadlineExceeded,
    InvalidMessage,
    PermanentError,
    PublishFailed,
    RedriveError,
    RetryLater,
    UnknownJob,
)

if TYPE_CHECKING:
    from redrive.publisher import Publisher

__version__ = "0.1.0"

__all__ = [
    "ContinueLater",
    "DeadlineExceeded",
    "InvalidMessage",
    "PermanentError",
    "PublishFailed",
    "Publisher",
    "RedriveError",
    "RetryLater",
    "UnknownJob",
]


def __getattr__(name: str) -> Any:
    # Loaded when asked for: a worker that publishes nothing need not wait for it at its cold start.
    if name == "Publisher":
        from redrive.publisher import Publisher

        return Publisher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

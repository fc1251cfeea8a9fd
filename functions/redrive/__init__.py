"""Redrive: background jobs on AWS. What services install; the worker is in `redrive.worker`.

The modules at this level need boto3 alone and never import `redrive.worker`, which needs Powertools
(`pip install redrive[worker]`).
"""

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

"""The AWS clients that Redrive makes: their settings, and one of each for all threads."""

from functools import cache
from threading import Lock
from typing import Any

import boto3
from botocore.config import Config

import redrive

_making = Lock()


def config(*, threads: int = 1, attempts: int = 3, read_timeout_seconds: float = 10) -> Config:
    """Settings for a client that `threads` threads share; `attempts` counts the first call too.

    A pool smaller than the threads opens and closes TLS connections, at 20 ms of CPU each.
    Parameters are validated by the service, and by our own checks before: botocore's validation is
    a quarter of the CPU of a call.
    https://botocore.amazonaws.com/v1/documentation/api/latest/reference/config.html
    """
    return Config(
        user_agent_extra=f"redrive/{redrive.__version__}",
        parameter_validation=False,
        max_pool_connections=max(threads, 1),
        retries={"total_max_attempts": attempts, "mode": "standard"},
        connect_timeout=3,
        read_timeout=read_timeout_seconds,
        tcp_keepalive=True,
    )


def shared(service: str, *, threads: int = 16, attempts: int = 3) -> Any:
    """The one client of a service with these settings, made by whichever thread asks first.

    For a job's own calls: `attempts=1` where the service must not be asked twice for one thing.
    """
    with _making:  # a batch's threads all ask at once, and a client takes a tenth of a second
        return _client(service, threads, attempts)


@cache
def _client(service: str, threads: int, attempts: int) -> Any:
    make: Any = boto3.client
    return make(service, config=config(threads=threads, attempts=attempts))

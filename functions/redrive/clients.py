"""The settings of every AWS client that Redrive makes."""

from botocore.config import Config

import redrive


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

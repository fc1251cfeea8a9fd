"""Where a job's messages go: what the stack says of each job, in an SSM parameter."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from botocore.exceptions import ClientError

from redrive import aws_errors
from redrive.errors import SettingsError, UnknownJob
from redrive.message import compile_key

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

_PARAMETER_VERSION: Final = 1

# The default of JobSpec.max_replays, for the parameter of a stack from before there was one.
_MAX_REPLAYS: Final = 3


def discover(ssm: "SSMClient", stage: str, job: str) -> "Destination":
    """Reads the SSM parameter `/redrive/<stage>/<job>`.

    Raises UnknownJob where there is none, and SettingsError where it cannot be used.
    """
    name = f"/redrive/{stage}/{job}"
    try:
        text = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    except ClientError as error:
        # ValidationException: a name that no parameter can have.
        if not aws_errors.names(error) & {"ParameterNotFound", "ValidationException"}:
            raise
        raise UnknownJob(
            f"stage {stage!r} has no job {job!r}: there is no SSM parameter {name} in this "
            "account and region. Is the name as in stacks/jobs.py, and the stage deployed?"
        ) from error
    try:
        return Destination.parse(job, text)
    except ValueError as error:
        raise SettingsError(f"the SSM parameter {name} is of no use: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a job's messages go, which value is its key, and what bounds there are.

    `queue_urls` are all of its source queues, of which a publisher sends to `queue_url`.
    """

    job: str
    key: str
    queue_url: str
    queue_urls: tuple[str, ...]
    dead_letter_queue_url: str
    fifo: bool
    max_message_bytes: int
    max_replays: int

    @classmethod
    def parse(cls, job: str, text: str) -> Self:
        """Reads the parameter that the stack writes. Raises ValueError, saying what is wrong."""
        try:
            fields = json.loads(text)
            if fields["version"] != _PARAMETER_VERSION:
                raise ValueError(
                    f"it has version {fields['version']}, this library reads version "
                    f"{_PARAMETER_VERSION}: install the release of redrive that the stack has"
                )
            compile_key(fields["key"])
            return cls(
                job=job,
                key=fields["key"],
                queue_url=str(fields["queues"]["normal"]),
                queue_urls=tuple(str(url) for url in fields["queues"].values()),
                dead_letter_queue_url=str(fields["dead_letter_queue"]),
                fifo=bool(fields["fifo"]),
                max_message_bytes=int(fields["limits"]["max_message_bytes"]),
                max_replays=int(fields["limits"].get("max_replays", _MAX_REPLAYS)),
            )
        except KeyError as missing:
            raise ValueError(f"it has no {missing.args[0]!r}") from None
        except (TypeError, AttributeError):
            raise ValueError("it is no JSON object of the form that the stack writes") from None

"""`Stage`: what differs between one deployment and another. Everything else is the same."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from aws_cdk import RemovalPolicy

from stacks.job_spec import JobSpec

DEV = "dev"
PROD = "prod"
LOCAL = "local"

# It is part of the stack's name and of the discovery parameter's; 20 leaves room for the rest of
# the names that CloudFormation generates and cuts at 64 characters.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")
# What SNS would take and never deliver to; the rest is the mail server's to say.
_EMAIL = re.compile(r"[^@\s,]+@[^@\s,]+\.[^@\s,.]+")
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")


class StageError(ValueError):
    """A context value that no stage can have; names it and says what it may be."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One deployment of the stack, as `-c name=value` describes it.

    Raises:
        StageError: a value is out of its bounds.
    """

    name: str = DEV
    customer_managed_key: bool = False
    """Encrypt queues, tables and topics with a KMS key of this stack instead of AWS's own."""
    lease: timedelta | None = None
    """The longest lease of any job. With the two below: tests do not wait for real ones."""
    backoff_base: timedelta | None = None
    backoff_cap: timedelta | None = None
    page_emails: tuple[str, ...] = ()
    """Who is woken by mail. SNS asks each of them, and of the next, to confirm."""
    notify_emails: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check names, and that nobody tunes production from the command line."""
        if not _NAME.fullmatch(self.name):
            raise StageError(
                f"stage={self.name!r} is not 1 to 20 of a-z, 0-9 and -, a letter first and no"
                " - last. Name it like 'dev', 'prod' or 'pr-17'."
            )
        for email in self.page_emails + self.notify_emails:
            if not _EMAIL.fullmatch(email):
                raise StageError(
                    f"{email!r} is no e-mail address. Set page_email and notify_email like"
                    " 'ann@example.com,bob@example.com'."
                )
        if self.retains_data and (self.lease or self.backoff_base or self.backoff_cap):
            raise StageError(
                "lease_seconds, backoff_base_seconds and backoff_cap_seconds shorten waits for"
                f" tests, not for stage {PROD!r}. Change the JobSpec instead."
            )

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> "Stage":
        """Read the stage from CDK context, whose values are strings when they come by `-c`."""
        return cls(
            name=str(context.get("stage") or "dev"),
            customer_managed_key=_flag(context, "customer_managed_key"),
            lease=_seconds(context, "lease_seconds"),
            backoff_base=_seconds(context, "backoff_base_seconds"),
            backoff_cap=_seconds(context, "backoff_cap_seconds"),
            page_emails=_list(context, "page_email"),
            notify_emails=_list(context, "notify_email"),
        )

    @property
    def stack_name(self) -> str:
        """`Redrive-dev`."""
        return f"Redrive-{self.name}"

    @property
    def retains_data(self) -> bool:
        """Whether queues and tables outlive the stack. Elsewhere they are deleted with it."""
        return self.name == PROD

    @property
    def is_local(self) -> bool:
        """Whether it is deployed to the embedded AWS."""
        return self.name == LOCAL

    @property
    def notifies(self) -> bool:
        """Whether it has the alarms that wake nobody; while one develops, they would be noise."""
        return self.name != DEV

    @property
    def removal_policy(self) -> RemovalPolicy:
        """For everything that holds data."""
        return RemovalPolicy.RETAIN if self.retains_data else RemovalPolicy.DESTROY

    def shorten(self, spec: JobSpec) -> JobSpec:
        """The spec with its lease and backoff no longer than this stage's."""
        cap = min(spec.backoff_cap, self.backoff_cap or spec.backoff_cap)
        base = min(spec.backoff_base, self.backoff_base or spec.backoff_base, cap)
        lease = min(spec.lease, self.lease or spec.lease)
        return replace(spec, lease=lease, backoff_base=base, backoff_cap=cap)


def _flag(context: Mapping[str, Any], name: str) -> bool:
    value = str(context.get(name) or "").lower()
    if value not in _TRUE + _FALSE:
        raise StageError(f"{name}={value!r} is neither true nor false.")
    return value in _TRUE


def _list(context: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Values with commas between them, each once."""
    values = (value.strip() for value in str(context.get(name) or "").split(","))
    return tuple(dict.fromkeys(value for value in values if value))


def _seconds(context: Mapping[str, Any], name: str) -> timedelta | None:
    value = context.get(name)
    if value is None:
        return None
    try:
        seconds = timedelta(seconds=float(value))
    except (TypeError, ValueError, OverflowError):
        seconds = timedelta(0)
    if seconds <= timedelta(0):
        raise StageError(f"{name}={value!r} is not a number of seconds above 0.")
    return seconds

"""What a `JobSpec` may not say: each bound, whose it is, and the way out.

AWS checks most of these only at deploy and some of them never: raise a function's timeout above
its queue's visibility timeout, and AWS takes it and runs every job twice.
"""

import keyword
import re
import sys
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import jmespath
from jmespath.exceptions import JMESPathError, JMESPathTypeError

from stacks.field_types import misfits

if TYPE_CHECKING:
    from stacks.job_spec import Allow, JobSpec

# What the worker keeps of its timeout to put a batch's outcome in order.
WORKER_RESERVE = timedelta(seconds=5)

# SQS's default. What it deletes at its end is gone without a trace: 12 hours before it, the longest
# that a message can stay hidden, the worker dead-letters a job itself.
SOURCE_RETENTION = timedelta(days=4)
RETENTION_RESERVE = timedelta(hours=12)

SERVICES = ("sns", "events", "s3")

# Of Lambda's 4 KB for names and values; the worker's own variables take up to 1.5 KB.
# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
ENVIRONMENT_BYTES = 2048
# Part of those 1.5 KB, and of the parameter that publishers read.
KEY_BYTES = 500

# A job's folder is found before the standard library: a job called `email` would break boto3.
_MODULES = frozenset(sys.stdlib_module_names) | frozenset(keyword.kwlist)
_OURS = frozenset({"redrive", "aws_lambda_powertools", "jmespath", "typing_extensions"})
# What Lambda's own runtime is made of, and imports at its start.
_LAMBDAS = frozenset(
    {"awslambdaric", "bootstrap", "runtime_client", "simplejson", "snapshot_restore_py"}
    | {"boto3", "botocore", "dateutil", "s3transfer", "six", "urllib3"}
)

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_ACCOUNT = re.compile(r"[0-9]{12}")
_ACTION = re.compile(r"[a-z0-9-]+:[A-Za-z0-9*]+")
# IAM takes no other: six parts, the middle ones empty in some services.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html
_RESOURCE = re.compile(r"\*|arn:[^:\s]+:[^:\s]+:[^:\s]*:[^:\s]*:.+")
_WILDCARD = re.compile(r"[*?]")
_VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]+")
_RESERVED_VARIABLE = re.compile(r"(REDRIVE|POWERTOOLS|AWS|LAMBDA|LD)_.*|PATH|PYTHONPATH|PYTHONHOME")
# `${aws:username}` is IAM's and none of ours.
_PLACEHOLDER = re.compile(r"(?<!\$)\{([^}]*)\}")
_PLACEHOLDERS = ("partition", "region", "account")


class JobSpecError(ValueError):
    """A spec that AWS would refuse, or would take and then lose or repeat jobs."""

    def __init__(self, job: str, field: str, problem: str, fix: str) -> None:
        super().__init__(f"JobSpec {job!r}, {field}: {problem}. {fix}.")
        self.job = job
        self.field = field


def check(spec: "JobSpec") -> None:
    """Raise `JobSpecError` for the first rule that `spec` breaks."""
    _check_types(spec)
    _check_name(spec)
    _check_key(spec)
    for bound in _BOUNDS:
        bound.check(spec)
    _check_batch(spec)
    _check_retries(spec)
    _check_publishers(spec)
    for permission in spec.permissions:
        _check_permission(spec, permission)
    _check_environment(spec)


def _refuse(spec: "JobSpec", field: str, problem: str, fix: str) -> NoReturn:
    raise JobSpecError(spec.name, field, problem, fix)


def _check_types(spec: "JobSpec") -> None:
    for field in fields(spec):
        for problem, fix in misfits(getattr(spec, field.name), field.type):
            _refuse(spec, field.name, problem, fix)


def _check_name(spec: "JobSpec") -> None:
    # 40: generated names are cut at 64 characters, and two jobs must stay apart in them.
    if not _NAME.fullmatch(spec.name) or len(spec.name) > 40:
        problem = f"{spec.name!r} is not snake_case of at most 40 characters"
        _refuse(spec, "name", problem, "Name it like 'send_email'; its folder has the same name")
    if spec.name == "replay":
        # In the jobs table the runs for a job are `replay:<job>`, as a job's messages are.
        problem = "its folder is that of the replay functions, and its ids are those of their runs"
        _refuse(spec, "name", problem, "Say what it does, as in 'replay_payment'")
    if spec.name in _MODULES | _OURS | _LAMBDAS:
        problem = f"its folder would hide the Python module {spec.name!r} from everything else"
        _refuse(spec, "name", problem, f"Say what it does, as in 'send_{spec.name}'")


def _check_key(spec: "JobSpec") -> None:
    size = len(spec.key.encode())
    if size > KEY_BYTES:
        problem = f"{size} bytes are more than the {KEY_BYTES} that there is room for"
        _refuse(spec, "key", problem, "Have the publisher put the key into a field of its own")
    try:
        constant = jmespath.compile(spec.key).search({})
    except JMESPathTypeError:
        return  # An expression that fails without its values is a good key: `join('-', [a, b])`.
    except (JMESPathError, RecursionError) as error:
        problem = f"{spec.key!r} is not JMESPath ({str(error).splitlines()[0].rstrip(':')})"
        _refuse(spec, "key", problem, "Write the path of a value in the payload, like 'email_id'")
    if constant is not None:
        problem = f"{spec.key!r} is {constant!r} for an empty payload, so that all payloads without"
        problem += " their key would be one job, of which only the first runs"
        _refuse(spec, "key", problem, "Use an expression that has no value when the key is missing")


@dataclass(frozen=True)
class _Bound:
    """The least and the most that a field may be, both included; whose bound it is; the way out."""

    field: str
    low: Any  # int or timedelta, as the field is
    high: Any
    whose: str
    fix: str

    def check(self, spec: "JobSpec") -> None:
        value = getattr(spec, self.field)
        if not self.low <= value <= self.high:
            bounds = f"{_text(self.low)} to {_text(self.high)}"
            problem = f"{_text(value)} is outside {bounds}, the bounds of {self.whose}"
            _refuse(spec, self.field, problem, self.fix)


_BOUNDS = (
    _Bound(
        "timeout",
        timedelta(seconds=1),
        timedelta(minutes=15),
        "a Lambda function",
        "Split the job, or let it save its progress and continue later",
    ),
    _Bound(
        "p99",
        timedelta(milliseconds=1),
        timedelta(minutes=15) - WORKER_RESERVE,
        "a job in a Lambda function",
        "Measure one run of the job; split it when it takes longer",
    ),
    _Bound(
        "lease",
        timedelta(seconds=3),
        timedelta(minutes=15),
        "a lease: a heartbeat must fit in three times, and no run outlives Lambda's timeout",
        "Leave it at 60 s unless killed jobs must be back sooner",
    ),
    _Bound(
        "batch_size",
        1,
        10_000,
        "an event source mapping",
        "Ask for fewer messages in a batch",
    ),
    _Bound(
        "batching_window",
        timedelta(0),
        timedelta(minutes=5),
        "an event source mapping",
        "Wait for less time; a job that is to run later is published later",
    ),
    _Bound(
        "max_attempts",
        1,
        1000,
        "an SQS receive count",
        "Raise backoff_base instead: a longer wait survives more than another attempt",
    ),
    _Bound(
        "max_kills",
        1,
        10,
        "a killed job: each time it takes its whole batch with it, and a lease to be found out",
        "Leave it at 3: one for a deploy, one for bad luck",
    ),
    _Bound(
        "max_replays",
        1,
        100,
        "a dead letter's replays: what comes back so often has a cause that replays do not mend",
        "Leave it at 3: `force` replays a dead letter whatever this says",
    ),
    _Bound(
        "backoff_base",
        timedelta(milliseconds=1),
        timedelta(hours=11),
        "a wait: SQS hides a message for at most 12 h since its receive, the run included",
        "Wait for less time",
    ),
    _Bound(
        "backoff_cap",
        timedelta(milliseconds=1),
        timedelta(hours=11),
        "a wait: SQS hides a message for at most 12 h since its receive, the run included",
        "Wait for less time",
    ),
    _Bound(
        "max_concurrency",
        2,
        1000,
        "an event source mapping's MaximumConcurrency",
        "For one job at a time use fifo=True and one message group",
    ),
    _Bound(
        "batch_concurrency",
        1,
        500,
        "a batch's threads: Lambda has 1,024 file descriptors, and a thread opens two connections",
        "Raise max_concurrency instead: more batches at once, not more threads in one",
    ),
    _Bound(
        "memory_mib",
        128,
        10_240,
        "a Lambda function",
        "Read large inputs in parts",
    ),
    _Bound(
        "growth_threshold_per_minute",
        1,
        1_000_000,
        "an alarm that wakes somebody",
        "1 wakes on every dead letter; raise it for a job whose failures can wait",
    ),
)

# What AWS takes in whole seconds only; the others are ours and may be fractions.
_WHOLE_SECONDS = ("timeout", "lease", "batching_window")


def _check_batch(spec: "JobSpec") -> None:
    for field in _WHOLE_SECONDS:
        if getattr(spec, field) % timedelta(seconds=1):
            problem = f"{_text(getattr(spec, field))} is not in whole seconds, as AWS counts"
            _refuse(spec, field, problem, "Round it up")
    if spec.fifo and spec.batching_window:
        problem = f"a FIFO queue has no batching window, and this is {_text(spec.batching_window)}"
        _refuse(spec, "batching_window", problem, "Leave it at 0")
    if spec.fifo and spec.batch_size > 10:
        problem = f"a batch from a FIFO queue holds at most 10 messages, not {spec.batch_size}"
        _refuse(spec, "batch_size", problem, "Set 10 or less")
    if spec.batch_size > 10 and not spec.batching_window:
        problem = f"a batch of {spec.batch_size}, more than 10, needs a batching window"
        _refuse(spec, "batch_size", problem, "Set batching_window to 1 s or more, or 10 messages")
    _check_p99(spec)


def _check_p99(spec: "JobSpec") -> None:
    time = spec.timeout - WORKER_RESERVE
    if spec.p99 > time:
        problem = f"{_text(spec.p99)} + {_text(WORKER_RESERVE)} for the worker's own work exceeds"
        problem += f" the timeout of {_text(spec.timeout)}"
        fix = f"Raise timeout to {_text(spec.p99 + WORKER_RESERVE)} or more, or split the job"
        _refuse(spec, "p99", problem, fix)
    most = spec.batch_concurrency * (time // spec.p99)
    if spec.batch_size > most:
        problem = f"{spec.batch_size} jobs of {_text(spec.p99)} do not fit into {_text(time)} on"
        problem += f" {spec.batch_concurrency} threads: at most {most} do"
        fix = f"Set batch_size to {most} or less, or raise timeout or batch_concurrency"
        _refuse(spec, "batch_size", problem, fix)


def _check_retries(spec: "JobSpec") -> None:
    if spec.backoff_base > spec.backoff_cap:
        problem = f"{_text(spec.backoff_base)} is above backoff_cap, {_text(spec.backoff_cap)}"
        _refuse(spec, "backoff_base", problem, "Lower it, or raise the cap")
    if spec.max_attempts > spec.max_receive_count:
        problem = f"after {spec.max_receive_count} receives SQS moves a message by itself, before"
        problem += f" its {spec.max_attempts} attempts are over"
        fix = f"Set max_attempts to {spec.max_receive_count} or less, or shorten the timeout"
        _refuse(spec, "max_attempts", problem, fix)
    longest = spec.retry_window_max + spec.max_attempts * spec.timeout
    most = SOURCE_RETENTION - RETENTION_RESERVE
    if longest > most:
        problem = f"its {spec.max_attempts} attempts and their waits can take {_text(longest)};"
        problem += f" they must end {_text(RETENTION_RESERVE)} before SQS's retention of"
        problem += f" {_text(SOURCE_RETENTION)} deletes the message, so within {_text(most)}"
        _refuse(spec, "max_attempts", problem, "Lower max_attempts or backoff_cap")


def _check_publishers(spec: "JobSpec") -> None:
    for publisher in spec.publishers:
        if not (publisher in SERVICES or _ACCOUNT.fullmatch(publisher)):
            problem = f"{publisher!r} is neither an account id of 12 digits nor one of"
            problem += f" {', '.join(SERVICES)}"
            fix = "A role of this account needs no entry: attach the job's publish policy to it"
            _refuse(spec, "publishers", problem, fix)
    for publisher in ("s3", "events"):
        if spec.fifo and publisher in spec.publishers:
            problem = f"{publisher!r} cannot send to a FIFO queue"
            problem += " (EventBridge could to one with content-based deduplication, S3 to none)"
            fix = "Publish from a function that the event invokes"
            _refuse(spec, "publishers", problem, fix)


def _check_permission(spec: "JobSpec", permission: "Allow") -> None:
    for field in ("actions", "resources"):
        if not getattr(permission, field):
            problem = f"{field}=() allows nothing"
            _refuse(spec, "permissions", problem, "Name at least one, or leave the permission out")
    for action in permission.actions:
        if not _ACTION.fullmatch(action):
            problem = f"{action!r} is not an IAM action of one service"
            _refuse(spec, "permissions", problem, "Write it like 'ses:SendEmail'")
    wild = _WILDCARD.search("".join(permission.actions + permission.resources))
    if wild and not permission.wildcards.strip():
        problem = f"a {wild[0]} in {permission} without a reason"
        fix = "Name the actions and resources, or say in wildcards= why that is not possible"
        _refuse(spec, "permissions", problem, fix)
    for resource in permission.resources:
        if not _RESOURCE.fullmatch(resource):
            problem = f"{resource!r} is neither an ARN nor a pattern of one"
            fix = "Write it like 'arn:{partition}:s3:::invoices-{account}/*'"
            _refuse(spec, "permissions", problem, fix)
        for placeholder in _PLACEHOLDER.findall(resource):
            if placeholder not in _PLACEHOLDERS:
                problem = f"{{{placeholder}}} in {resource!r} stands for nothing"
                fix = "Use {partition}, {region} and {account}"
                _refuse(spec, "permissions", problem, fix)


def _check_environment(spec: "JobSpec") -> None:
    for name in spec.environment:
        if _RESERVED_VARIABLE.fullmatch(name):
            problem = f"{name} is for Redrive or for AWS to set"
            _refuse(spec, "environment", problem, "Choose a name of your own")
        if not _VARIABLE.fullmatch(name):
            problem = f"Lambda takes no variable called {name!r}"
            _refuse(spec, "environment", problem, "Use letters, digits and _, a letter first")
    size = sum(len((name + value).encode()) for name, value in spec.environment.items())
    if size > ENVIRONMENT_BYTES:
        problem = f"{size} bytes are more than the {ENVIRONMENT_BYTES} that Lambda leaves for a job"
        _refuse(spec, "environment", problem, "Keep large settings in SSM or S3 and give the name")


def _text(value: int | timedelta) -> str:
    """Seconds up to ten minutes, then a timedelta's own words: `360 s`, `1:30:00`."""
    if isinstance(value, int):
        return f"{value:,}"
    if value <= timedelta(minutes=15):
        return f"{value.total_seconds():g} s"
    return str(value)

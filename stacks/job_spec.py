"""`JobSpec`: everything that one job asks of AWS. What follows from it is derived, never asked for.

Imports neither `aws_cdk` nor the runtime library. What a spec may not say, and why, stands in
`stacks.job_rules`.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from types import MappingProxyType

from stacks import job_rules
from stacks.job_rules import SOURCE_RETENTION

# A standard queue's message keeps its enqueue time when SQS moves it, so that these 14 days (the
# most that SQS gives) run from the same moment as the source's 4.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
DEAD_LETTER_RETENTION = timedelta(days=14)

# AWS's advice: the poller needs room to repeat an invocation that was throttled.
# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
VISIBILITY_PER_TIMEOUT = 6


@dataclass(frozen=True)
class Allow:
    """Something in AWS that a job may do, beyond what every worker may.

    Resources are ARNs; `{partition}`, `{region}` and `{account}` in them become the deployment's.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    wildcards: str = ""
    """Why a `*` or `?` in them, if any, is as narrow as can be: `one object per invoice`."""


@dataclass(frozen=True)
class JobSpec:
    """One job: a folder with its code, a queue and its dead-letter queue, one Lambda function.

    Raises:
        JobSpecError: the spec asks for what AWS would refuse at deploy, or would accept and then
            lose jobs or run them twice. The message names the bound and the way out.
    """

    name: str
    """The folder, the metric dimension, the log key and, as `pascal_name`, the construct id."""
    _: KW_ONLY
    key: str
    """JMESPath of the value in the payload that tells one job from another, e.g. `email_id`."""
    timeout: timedelta = timedelta(seconds=60)
    """How long one invocation, that is one batch, may take. At most 15 minutes."""
    p99: timedelta = timedelta(seconds=5)
    """How long 99 of 100 runs of one job stay under; decides what still fits into a batch."""
    lease: timedelta = timedelta(seconds=60)
    """How soon another worker has the job when this one is killed. Renewed while the job runs."""
    batch_size: int = 10
    batching_window: timedelta = timedelta(0)
    """How long the poller waits to fill a batch; needed for more than 10 in a batch."""
    max_attempts: int = 12
    """Failed runs of one message before it is dead-lettered. Receives are not attempts."""
    max_kills: int = 3
    """Runs of one message that may end without a word before it is dead-lettered as `Killed`."""
    max_replays: int = 3
    """How often a dead letter may be replayed before only `force` does it."""
    backoff_base: timedelta = timedelta(seconds=10)
    """Upper end of the first wait; doubles with every attempt. Each wait is drawn from 0 to it."""
    backoff_cap: timedelta = timedelta(minutes=15)
    max_concurrency: int = 10
    """How many batches run at once, over all of the fleet."""
    batch_concurrency: int = 10
    """How many jobs of one batch run at once, each on a thread. 1 for work that needs the CPU."""
    memory_mib: int = 512
    fifo: bool = False
    growth_threshold_per_minute: int = 10
    """New dead letters in a minute from which on somebody is woken."""
    publishers: tuple[str, ...] = ()
    """Who may publish beside this account's roles: accounts by their ids, `sns`, `events`, `s3`.

    Another account's role needs a policy there too, and the queue's URL, which SSM tells it not.
    """
    permissions: tuple[Allow, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The job's own settings. A secret belongs in Secrets Manager; give its name here."""

    def __post_init__(self) -> None:
        """Check everything, then freeze the environment."""
        job_rules.check(self)
        object.__setattr__(self, "environment", MappingProxyType(dict(self.environment)))

    @property
    def pascal_name(self) -> str:
        """`send_email` as `SendEmail`: the construct's id and the outputs' first part."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def visibility_timeout(self) -> timedelta:
        """The queue's: six times the function's timeout, and the batching window."""
        return VISIBILITY_PER_TIMEOUT * self.timeout + self.batching_window

    @property
    def max_receive_count(self) -> int:
        """The backstop for messages that die before the worker's first line.

        As many receives as fit into half of the retention, so that SQS moves a message before the
        retention deletes it; SQS takes at most 1,000.
        """
        return max(10, min(1000, SOURCE_RETENTION // 2 // self.visibility_timeout))

    @property
    def retry_window_max(self) -> timedelta:
        """The longest time that the waits between all attempts add up to."""
        window, wait = timedelta(0), self.backoff_base
        for _ in range(self.max_attempts - 1):
            window += min(wait, self.backoff_cap)
            wait = min(2 * wait, self.backoff_cap)
        return window

    @property
    def retry_window_mean(self) -> timedelta:
        """The outage that the retries survive on average: full jitter halves every wait."""
        return self.retry_window_max / 2

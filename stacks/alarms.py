"""What wakes somebody, and what somebody should know in the morning; each alarm says what to do.

Every alarm tells its topic itself: a composite that is red already would swallow the next page.
Ten alarms to a job are half of its resources, and CloudFormation takes 500 in a stack: 22 jobs with
all alarms, 33 with the pages alone. CDK refuses more; they need a deployment of their own. So many
are close to the 1 MB of a template too.
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.job_rules import SOURCE_RETENTION
from stacks.job_spec import DEAD_LETTER_RETENTION, JobSpec
from stacks.metrics import AGE, NOT_VISIBLE, JobMetrics, math
from stacks.stage import Stage
from stacks.topics import Topics

# Of the 120,000 messages of a queue that may be received and not deleted; then SQS gives none.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
_MANY_HIDDEN = 100_000

# What SQS itself moved keeps its enqueue time, so it may have spent the source's retention already.
_TIME_TO_ACT = timedelta(days=2)
_OLD = DEAD_LETTER_RETENTION - SOURCE_RETENTION - _TIME_TO_ACT

# An alarm on math reads so many metrics, and cannot SEARCH for them.
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-on-metric-math-expressions.html
_METRICS_OF_AN_ALARM = 10


@dataclass(frozen=True, kw_only=True)
class _Alert:
    """An alarm to be: `minutes` of the last `of` (where the metric has other periods, of those) at
    or above `threshold`; and what whoever is told should know.
    """

    name: str
    metric: cloudwatch.IMetric
    threshold: float
    minutes: int = 1
    # More than one, so that a datapoint that comes late still counts.
    # https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html
    of: int = 5
    means: str
    causes: str
    then: str


def create_job_alarms(metrics: JobMetrics, topics: Topics) -> list[cloudwatch.Alarm]:
    """All alarms of one job; returns those that wake somebody."""
    scope = Construct(metrics.job, "Alarms")
    name = metrics.job.spec.name

    def create(alert: _Alert, topic: sns.Topic) -> cloudwatch.Alarm:
        return _alarm(scope, alert, topic, _runbook(alert, name, metrics.stage))

    pages = [create(alert, topics.page) for alert in _pages(metrics)]
    if metrics.stage.notifies:
        for alert in _notes(metrics):
            create(alert, topics.notify)
    return pages


def create_replay_alarms(scope: Construct, jobs: Sequence[JobMetrics], topics: Topics) -> None:
    """Alarms on what Replay could not send: one for all jobs, or for each ten of them."""
    for start in range(0, len(jobs), _METRICS_OF_AN_ALARM):
        some = jobs[start : start + _METRICS_OF_AN_ALARM]
        if some[0].stage.notifies:
            alert = _replay_failed(some, number=start // _METRICS_OF_AN_ALARM)
            runbook = _runbook(alert, some[0].job.spec.name, some[0].stage)
            _alarm(scope, alert, topics.notify, runbook)


def _alarm(scope: Construct, alert: _Alert, topic: sns.Topic, runbook: str) -> cloudwatch.Alarm:
    alarm = cloudwatch.Alarm(
        scope,
        alert.name,
        alarm_description=runbook,
        metric=alert.metric,
        threshold=alert.threshold,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        datapoints_to_alarm=alert.minutes,
        evaluation_periods=alert.of,
        # Every metric here is silent while nothing happens: an idle queue's, a counter's.
        # https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
    )
    alarm.add_alarm_action(actions.SnsAction(topic))
    return alarm


def _runbook(alert: _Alert, job: str, stage: Stage) -> str:
    """What an alarm says, of which CloudWatch takes 1,024 characters."""
    look = {"job": job, "action": "list"}
    try_out = {"job": job, "action": "replay", "dry_run": True}
    replay = {"job": job, "action": "replay", "canary": 5, "reason": "mended"}
    return "\n".join(
        (
            alert.means,
            f"Causes: {alert.causes}",
            alert.then,
            f"What died, and why? In Lambda's console, test {stage.stack_name}-Replay... with",
            json.dumps(look),
            "Is the cause mended? See what a replay would do; then five first, then the rest:",
            json.dumps(try_out),
            json.dumps(replay),
        )
    )


def _pages(metrics: JobMetrics) -> Iterator[_Alert]:
    spec = metrics.job.spec
    yield _Alert(
        name="DeadLetterGrowth",
        metric=metrics.growth(),
        threshold=spec.growth_threshold_per_minute,
        means=f"{spec.growth_threshold_per_minute} or more {spec.name} jobs died in a minute.",
        causes="what the job calls is down or refuses us; a deploy broke the job; somebody"
        " publishes payloads that no worker can run.",
        then="List them: one cause for all is one thing to mend or to roll back. Until then more"
        " die, and none is lost.",
    )
    yield _Alert(
        name="Backlog",
        metric=metrics.wait(),
        threshold=late(spec) // timedelta(seconds=1),
        minutes=_patience(spec),
        of=_patience(spec),
        means=f"{spec.name} jobs wait for {late(spec) // timedelta(minutes=1)} minutes or longer.",
        causes="the worker is throttled or its deploy is broken; the mapping is disabled, or may"
        " not read the queue; more is published than max_concurrency runs.",
        then="The dashboard tells: no concurrency, nothing runs: mend the mapping or the worker."
        " Full concurrency: raise it. SQS deletes a job after"
        f" {SOURCE_RETENTION.days} days.",
    )
    yield _Alert(
        name="WorkerErrors",
        metric=metrics.worker("Errors"),
        threshold=1,
        minutes=3,
        means=f"The {spec.name} worker's invocations fail. It never raises, so that they are killed"
        " or do not start.",
        causes="a deploy that cannot be imported or lacks its layer; a timeout; too little memory.",
        then="Read the worker's log, then roll back or mend. No job is lost: each comes back within"
        " its lease or its visibility timeout.",
    )


def late(spec: JobSpec) -> timedelta:
    """How long a job waits at least before anybody is woken.

    As long as the retries take on average, which who publishes must bear anyway: a FIFO group waits
    so long behind a job that fails. And as long as a message stays hidden when its invocation was
    throttled, twice: once is Lambda's everyday.
    """
    return max(spec.retry_window_mean, 2 * spec.visibility_timeout)


def _patience(spec: JobSpec) -> int:
    """For how many minutes jobs must wait so.

    An invocation may end nothing before its timeout, and a burst's first minutes have no pace yet.
    """
    return _minutes(spec.timeout) + 10


def _notes(metrics: JobMetrics) -> Iterator[_Alert]:
    spec = metrics.job.spec
    yield _Alert(
        name="RunKilled",
        metric=metrics.told("RunKilled"),
        threshold=1,
        means=f"A run of {spec.name} ended without a word. Another worker has its job;"
        f" {spec.max_kills} kills make it a dead letter, Killed.",
        causes="a job that hangs, or needs more time or memory than its JobSpec gives; a large"
        " payload; a host of Lambda's that went away.",
        then='The worker\'s log line "run was killed" names the job and the log stream of the run.',
    )
    yield _Alert(
        name="NewDeadLetter",
        metric=metrics.any_growth(),
        threshold=1,
        means=f"At least one {spec.name} job died. (A scan or a lost datapoint may look like it.)",
        causes="a payload that no worker can run; what the job calls refused it; its attempts are"
        " over.",
        then="List it. A payload that can never run is purged, or left: old dead letters wake"
        " nobody.",
    )
    yield _Alert(
        name="OldDeadLetter",
        # SQS leaves out what was received three times, as by three scans: it is late for those.
        metric=metrics.dead_letters(AGE),
        threshold=_OLD // timedelta(seconds=1),
        means=f"A dead letter of {spec.name} is {_OLD.days} days old. SQS deletes it"
        f" {DEAD_LETTER_RETENTION.days} days after it was first sent: in {_TIME_TO_ACT.days} days,"
        " if SQS itself moved it.",
        causes="nobody replayed or purged it.",
        then="Decide: replay it, purge it, or let it go.",
    )
    yield _Alert(
        name="SlowJobs",
        metric=metrics.told("Duration", "p99").with_(period=Duration.minutes(5)),
        threshold=spec.p99 / timedelta(milliseconds=1),
        minutes=3,
        of=3,
        means=f"The slowest of 100 runs of {spec.name} takes longer than its p99,"
        f" {spec.p99.total_seconds():g} s, for a quarter of an hour: a batch may not end in time.",
        causes="what the job calls is slow; larger payloads; too little memory, which is also CPU.",
        then="Mend it, or declare the p99 that you measure; synth says what must follow.",
    )
    yield _Alert(
        name="Throttles",
        metric=metrics.worker("Throttles"),
        threshold=1,
        minutes=3,
        means=f"Lambda refuses to run the {spec.name} worker. Each refusal costs a receive, and"
        f" after {spec.max_receive_count} SQS moves the message.",
        causes="the account's concurrency is used up, by any function; somebody set a reserved"
        f" concurrency below max_concurrency, {spec.max_concurrency}.",
        then="Raise the account's quota or the reserve, or lower max_concurrency.",
    )
    yield _Alert(
        name="ManyHidden",
        metric=metrics.queue(NOT_VISIBLE),
        threshold=_MANY_HIDDEN,
        means=f"{_MANY_HIDDEN:,} {spec.name} jobs run or wait for a retry. At 120,000 SQS gives no"
        " more, and new jobs stand still.",
        causes="what the job calls is down, and all wait for their next attempt.",
        then="Mend that, or stop publishing; a PermanentError does not wait.",
    )
    yield _Alert(
        name="NotPolling",
        metric=metrics.unpolled(),
        threshold=1,
        minutes=_silence(spec),
        of=_silence(spec),
        means=f"{spec.name} jobs wait and the event source mapping has taken none for"
        f" {_silence(spec)} minutes.",
        causes="the mapping is disabled; its role or the key's policy changed; a FIFO group waits"
        " behind a job that asked to.",
        then="Lambda's console shows the mapping's state under the worker's triggers. Enable it, or"
        " deploy again.",
    )


def _silence(spec: JobSpec) -> int:
    """For how many minutes a poller takes nothing, at most, when all is well.

    All invocations may be busy until their timeout; all FIFO groups may wait for a retry.
    """
    return _minutes(spec.timeout) + (_minutes(spec.backoff_cap) if spec.fifo else 0) + 5


def _replay_failed(jobs: Sequence[JobMetrics], number: int) -> _Alert:
    status = {"job": jobs[0].job.spec.name, "action": "status"}
    failed = {f"job{index}": job.told("ReplayFailed") for index, job in enumerate(jobs)}
    return _Alert(
        name=f"Failures{number or ''}",
        metric=math(f"SUM([{','.join(failed)}])", **failed),
        threshold=1,
        means="Replay could not send or delete dead letters. They are where they were.",
        causes="SQS or the key refused it; a message without room; the queue is gone.",
        then=f"Ask for the run's answer: {json.dumps(status)}. It may have been another job's: then"
        " put its name in, here and below.",
    )


def _minutes(value: timedelta) -> int:
    """Whole minutes, rounded up."""
    return -(-value // timedelta(minutes=1))

"""The metrics of one job, as its alarms and the dashboard read them: one point a minute."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from stacks.job_queue import JobQueue
from stacks.stage import Stage

# The functions' own, as `redrive.worker.telemetry` writes it.
NAMESPACE = "Redrive"

MINUTE = Duration.minutes(1)

VISIBLE = "ApproximateNumberOfMessagesVisible"
NOT_VISIBLE = "ApproximateNumberOfMessagesNotVisible"
AGE = "ApproximateAgeOfOldestMessage"

# More than a queue can hold: what stands for a depth that nobody knows.
_UNKNOWN = 1_000_000_000


@dataclass(frozen=True)
class JobMetrics:
    """Where CloudWatch has what is known of one job."""

    job: JobQueue
    stage: Stage

    def told(self, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
        """What the worker or Replay tells of the job, like `Succeeded`."""
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"stage": self.stage.name, "job": self.job.spec.name},
            statistic=statistic,
            period=MINUTE,
        )

    def queue(self, name: str) -> cloudwatch.Metric:
        """What SQS tells of the queue, like `VISIBLE`."""
        return _of_queue(self.job.queue, name)

    def dead_letters(self, name: str) -> cloudwatch.Metric:
        """What SQS tells of the dead-letter queue."""
        return _of_queue(self.job.dead_letter_queue, name)

    def worker(self, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
        """What Lambda tells of the worker, like `Errors`."""
        return self.job.worker.metric(name, statistic=statistic, period=MINUTE)

    def polled(self) -> cloudwatch.Metric:
        """The messages that the poller took: 0 when it found none, no point when it is off.

        https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
        """
        return cloudwatch.Metric(
            namespace="AWS/Lambda",
            metric_name="PolledEventCount",
            dimensions_map={
                "EventSourceMappingUUID": self.job.event_source_mapping.event_source_mapping_id
            },
            statistic="Sum",
            period=MINUTE,
        )

    def dead(self) -> cloudwatch.MathExpression:
        """How many dead letters there are, those included that a scan holds for a while."""
        return math("SUM([visible,not_visible])", **self._dead_letters())

    # Both growths add visible and not visible, since a scan moves dead letters from one to the
    # other, and take the worker's count too: it knows of what is drained before SQS counts it, and
    # of the first dead letter in a queue that SQS had stopped counting. They say the same whether a
    # missing value is 0 in arithmetic, as the page has it, or makes the result missing, as people
    # report: none of theirs is ever missing.
    # https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html

    def growth(self) -> cloudwatch.MathExpression:
        """New dead letters in a minute, for who is woken by them: told late rather than wrongly.

        Nobody is woken by a scan, by a lost datapoint, or by old dead letters in a queue that SQS
        counts again. What only SQS moved, into a queue that it did not count, is not seen here.
        """
        # The two are not sampled at once: in a scan their sum is too high for a minute or too low,
        # and the difference to the minute before takes the way back from too low for growth. So it
        # is the median of three minutes that must grow. A minute without its point (the newest
        # often has none yet) repeats the one before it, so it must not confirm that one: there the
        # median stays. What was before the first point that CloudWatch looks at is taken for more
        # than there can be: nothing grows from the unknown.
        depth = math(
            f"FILL(FILL(visible,REPEAT),{_UNKNOWN})+FILL(FILL(not_visible,REPEAT),{_UNKNOWN})",
            **self._dead_letters(),
        )
        before = math(f"depth-FILL(DIFF(depth),-{_UNKNOWN})", depth=depth)
        earlier = math("before-FILL(DIFF(before),0)", before=before)
        level = math(
            "FILL(IF(FILL(visible,-1)>=0,depth+before+earlier"
            "-MAX([depth,before,earlier])-MIN([depth,before,earlier])),REPEAT)",
            visible=self._dead_letters()["visible"],
            depth=depth,
            before=before,
            earlier=earlier,
        )
        return math(
            "MAX([FILL(DIFF(level),0),FILL(counted,0)])",
            level=level,
            counted=self.told("DeadLettered"),
        )

    def any_growth(self) -> cloudwatch.MathExpression:
        """The same for who only wants to know: told at once, and now and then wrongly."""
        return math(
            "MAX([DIFF(FILL(visible,0)+FILL(not_visible,0)),FILL(counted,0)])",
            **self._dead_letters(),
            counted=self.told("DeadLettered"),
        )

    def _dead_letters(self) -> dict[str, cloudwatch.IMetric]:
        return {
            "visible": self.dead_letters(VISIBLE),
            "not_visible": self.dead_letters(NOT_VISIBLE),
        }

    def wait(self) -> cloudwatch.MathExpression:
        """How many seconds a job waits: as the oldest has, or as all will that wait now."""
        # A job that waits by its own wish (`RetryLater`) is hidden and not visible: then the age is
        # nobody's wait. And SQS leaves out of the age what was received three times, which a
        # throttled worker does to every message: those are counted, and go at the last minute's
        # pace, or at one a minute when none was done.
        # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
        return math(
            "MAX([IF(visible>0,age,0),visible*60/MAX([SUM([succeeded,duplicate]),visible*0+1])])",
            visible=self.queue(VISIBLE),
            age=self.queue(AGE),
            succeeded=self.told("Succeeded"),
            duplicate=self.told("Duplicate"),
        )

    def unpolled(self) -> cloudwatch.MathExpression:
        """The jobs that wait while the poller takes none."""
        # Not FILL(polled,0): of a mapping that is off there is no point that could be filled up.
        return math(
            "IF(MAX([polled,visible*0])<1,visible,0)",
            visible=self.queue(VISIBLE),
            polled=self.polled(),
        )


def math(expression: str, **metrics: cloudwatch.IMetric) -> cloudwatch.MathExpression:
    """An expression a minute: the default of five would go for its metrics too."""
    return cloudwatch.MathExpression(expression=expression, using_metrics=metrics, period=MINUTE)


def _of_queue(queue: sqs.IQueue, name: str) -> cloudwatch.Metric:
    # Gauges: of several samples in a minute the highest.
    return queue.metric(name, statistic="Maximum", period=MINUTE)

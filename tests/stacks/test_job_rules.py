"""Every refusal, each with its bound and its way out."""

import re
from datetime import timedelta
from typing import Any

import pytest

from stacks.job_rules import JobSpecError
from stacks.job_spec import Allow, JobSpec


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def refusal(name: str = "send_email", **fields: Any) -> JobSpecError:
    with pytest.raises(JobSpecError) as caught:
        JobSpec(name, **{"key": "email_id", **fields})
    return caught.value


CASES: list[tuple[str, dict[str, Any], str, str, str]] = [
    # what is wrong, the spec, the field that is named, the bound, the way out
    (
        "p99 above the timeout",
        {"p99": seconds(56)},
        "p99",
        r"56 s \+ 5 s .* 60 s",
        "timeout to 61 s",
    ),
    (
        "a batch that does not fit",
        {"batch_size": 9, "batch_concurrency": 4, "timeout": seconds(15)},
        "batch_size",
        "at most 8",
        "batch_size to 8 or less, or raise timeout or batch_concurrency",
    ),
    ("one batch at a time", {"max_concurrency": 1}, "max_concurrency", "2 to 1,000", "fifo=True"),
    ("too many batches", {"max_concurrency": 1001}, "max_concurrency", "2 to 1,000", "fifo"),
    ("a timeout of 15 min 1 s", {"timeout": seconds(901)}, "timeout", "1 s to 900 s", "Split"),
    ("no timeout", {"timeout": seconds(0)}, "timeout", "1 s to 900 s", "Split"),
    ("half a second of timeout", {"timeout": seconds(60.5)}, "timeout", "whole seconds", "Round"),
    ("no batch", {"batch_size": 0}, "batch_size", "1 to 10,000", "fewer"),
    (
        "an enormous batch",
        {"batch_size": 10_001, "batching_window": seconds(1)},
        "batch_size",
        "1 to 10,000",
        "fewer",
    ),
    ("a large batch at once", {"batch_size": 11}, "batch_size", "more than 10", "batching_window"),
    (
        "a long window",
        {"batching_window": seconds(301)},
        "batching_window",
        "0 s to 300 s",
        "less time",
    ),
    (
        "a window of half a second",
        {"batching_window": seconds(0.5)},
        "batching_window",
        "whole seconds",
        "Round",
    ),
    (
        "a window on FIFO",
        {"fifo": True, "batching_window": seconds(1)},
        "batching_window",
        "no batching window",
        "0",
    ),
    ("a large batch on FIFO", {"fifo": True, "batch_size": 11}, "batch_size", "at most 10", "10"),
    ("a short lease", {"lease": seconds(2)}, "lease", "3 s to 900 s", "60 s"),
    ("a long lease", {"lease": seconds(901)}, "lease", "3 s to 900 s", "60 s"),
    ("a lease in milliseconds", {"lease": seconds(3.5)}, "lease", "whole seconds", "Round"),
    ("no attempt", {"max_attempts": 0}, "max_attempts", "1 to 1,000", "backoff_base"),
    ("no kill at all", {"max_kills": 0}, "max_kills", "1 to 10", "3"),
    ("a poison pill for ever", {"max_kills": 11}, "max_kills", "1 to 10", "3"),
    ("no replay at all", {"max_replays": 0}, "max_replays", "1 to 100", "`force` replays"),
    ("a replay for ever", {"max_replays": 101}, "max_replays", "1 to 100", "`force` replays"),
    ("no base", {"backoff_base": seconds(0)}, "backoff_base", "0.001 s to 11:00:00", "less"),
    (
        "a wait that SQS cannot do",
        {"backoff_cap": timedelta(hours=12)},
        "backoff_cap",
        "0.001 s to 11:00:00",
        "less",
    ),
    (
        "a base above the cap",
        {"backoff_cap": seconds(5)},
        "backoff_base",
        "10 s is above backoff_cap, 5 s",
        "raise the cap",
    ),
    (
        "retries that outlive the message",
        {"max_attempts": 12, "backoff_base": timedelta(hours=8), "backoff_cap": timedelta(hours=8)},
        "max_attempts",
        "within 3 days, 12:00:00",
        "Lower max_attempts or backoff_cap",
    ),
    (
        "retries that outlive the message for the time that the runs take",
        {
            "max_attempts": 11,
            "backoff_base": timedelta(hours=8.4),
            "backoff_cap": timedelta(hours=8.4),
        },
        "max_attempts",
        "can take 3 days, 12:11:00",
        "Lower max_attempts or backoff_cap",
    ),
    (
        "more attempts than receives",
        {"max_attempts": 33, "timeout": seconds(900)},
        "max_attempts",
        "after 32 receives",
        "max_attempts to 32 or less",
    ),
    ("no thread", {"batch_concurrency": 0}, "batch_concurrency", "1 to 500", "max_concurrency"),
    ("too many threads", {"batch_concurrency": 501}, "batch_concurrency", "1 to 500", "batches"),
    ("little memory", {"memory_mib": 127}, "memory_mib", "128 to 10,240", "parts"),
    ("much memory", {"memory_mib": 10_241}, "memory_mib", "128 to 10,240", "parts"),
    (
        "no growth threshold",
        {"growth_threshold_per_minute": 0},
        "growth_threshold_per_minute",
        "1 to",
        "1 wakes",
    ),
    (
        "seconds without a unit",
        {"timeout": 60},
        "timeout",
        "60 .* no unit",
        "timedelta(seconds=...)",
    ),
    ("a fraction of a batch", {"batch_size": 2.5}, "batch_size", "2.5", "an int"),
    ("true as a number", {"max_concurrency": True}, "max_concurrency", "True", "an int"),
    ("text as a truth", {"fifo": "false"}, "fifo", "'false' is not a bool", "True or False"),
    ("a number as a truth", {"fifo": 1}, "fifo", "1 is not a bool", "True or False"),
    ("a number as the key", {"key": 5}, "key", "5 is not a string", "quotes"),
    ("a number as a publisher", {"publishers": (1,)}, "publishers", "1 is not a string", "quotes"),
    ("no environment", {"environment": None}, "environment", "None is not a mapping", "{'NAME'"),
    ("a number for a name", {"environment": {1: "x"}}, "environment", "1 is not a str", "quotes"),
    (
        "an action as a permission",
        {"permissions": ("ses:SendEmail",)},
        "permissions",
        "'ses:SendEmail' is not an Allow",
        "Allow(...)",
    ),
    (
        "a reason that is none",
        {"permissions": (Allow(("s3:Get*",), ("*",), wildcards=True),)},  # type: ignore[arg-type]
        "permissions",
        "wildcards=True is not a string",
        "quotes",
    ),
    ("broken JMESPath", {"key": "email_id["}, "key", r"'email_id\[' is not JMESPath", "path"),
    ("an unknown function", {"key": "lower(id)"}, "key", "Unknown function: lower", "path"),
    ("a function short of a value", {"key": "join('-')"}, "key", "Expected 2 arguments", "path"),
    ("no JMESPath", {"key": ""}, "key", "is not JMESPath", "path"),
    ("a bottomless key", {"key": "(" * 499}, "key", "is not JMESPath", "path"),
    ("a long key", {"key": "k" * 501}, "key", "501 bytes are more than the 500", "of its own"),
    ("a constant key", {"key": "'all'"}, "key", "'all' for an empty payload", "no value"),
    ("a key with a default", {"key": "id || 'none'"}, "key", "'none' for an empty", "no value"),
    ("a key that turns null to text", {"key": "to_string(id)"}, "key", "'null' for", "no value"),
    ("an unknown publisher", {"publishers": ("sqs",)}, "publishers", "sns, events, s3", "policy"),
    ("a short account id", {"publishers": ("12345",)}, "publishers", "12 digits", "policy"),
    ("a publisher without a comma", {"publishers": "sns"}, "publishers", "not a tuple", "comma"),
    (
        "S3 to a FIFO queue",
        {"publishers": ("s3",), "fifo": True},
        "publishers",
        "'s3' cannot send to a FIFO queue",
        "a function that the event invokes",
    ),
    (
        "EventBridge to a FIFO queue",
        {"publishers": ("sns", "events"), "fifo": True},
        "publishers",
        "'events' cannot send to a FIFO queue",
        "a function that the event invokes",
    ),
    (
        "actions without a comma",
        {"permissions": (Allow("ses:SendEmail", ("*",)),)},  # type: ignore[arg-type]
        "permissions",
        "not a tuple",
        "comma",
    ),
    (
        "no resource",
        {"permissions": (Allow(("ses:SendEmail",), ()),)},
        "permissions",
        r"resources=\(\) allows nothing",
        "at least one",
    ),
    *(
        (
            f"the resource {resource or 'nothing'}",
            {"permissions": (Allow(("ses:SendEmail",), (resource,), wildcards="why"),)},
            "permissions",
            "neither an ARN nor a pattern",
            "arn:{partition}:s3:::",
        )
        for resource in ("", "invoices", "arn:x", "arn:aws:s3:bucket", "**", "arn:aws:s3:::", " *")
    ),
    (
        "an action of all services",
        {"permissions": (Allow(("*",), ("*",)),)},
        "permissions",
        "'\\*' is not an IAM action",
        "ses:SendEmail",
    ),
    (
        "an unknown placeholder",
        {"permissions": (Allow(("ses:SendEmail",), ("arn:aws:s3:::{stage}",)),)},
        "permissions",
        "{stage} in 'arn:aws:s3:::{stage}'",
        "{partition}, {region} and {account}",
    ),
    (
        "a wildcard without a reason",
        {"permissions": (Allow(("s3:GetObject",), ("arn:{partition}:s3:::b/*",)),)},
        "permissions",
        r"a \* in .* without a reason",
        "wildcards=",
    ),
    (
        "a wildcard of one character without a reason",
        {"permissions": (Allow(("s3:GetObject",), ("arn:aws:s3:::b/?",)),)},
        "permissions",
        r"a \? in .* without a reason",
        "wildcards=",
    ),
    (
        "a wildcard with a blank for a reason",
        {"permissions": (Allow(("s3:GetObject",), ("arn:aws:s3:::b/*",), wildcards=" "),)},
        "permissions",
        r"a \* in .* without a reason",
        "wildcards=",
    ),
    *(
        (
            f"the variable {name}",
            {"environment": {name: "x"}},
            "environment",
            f"{name} is for Redrive or for AWS to set",
            "your own",
        )
        for name in (
            "REDRIVE_STAGE",
            "POWERTOOLS_SERVICE_NAME",
            "AWS_REGION",
            "PATH",
            "PYTHONPATH",
            "LD_PRELOAD",
        )
    ),
    (
        "a name that Lambda refuses",
        {"environment": {"MAIL-FROM": "x"}},
        "environment",
        "'MAIL-FROM'",
        "letters, digits and _",
    ),
    (
        "a number as a variable",
        {"environment": {"PORT": 25}},
        "environment",
        "PORT=25 is not a string",
        "quotes",
    ),
    (
        "a large environment",
        {"environment": {"TEMPLATE": "x" * 2041}},
        "environment",
        "2049 bytes .* 2048",
        "SSM or S3",
    ),
]


@pytest.mark.parametrize(
    ("fields", "field", "bound", "fix"),
    [case[1:] for case in CASES],
    ids=[case[0].replace(" ", "-") for case in CASES],
)
def test_a_spec_is_refused_with_the_bound_and_the_way_out(
    fields: dict[str, Any], field: str, bound: str, fix: str
) -> None:
    error = refusal(**fields)
    assert isinstance(error, ValueError)
    assert (error.job, error.field) == ("send_email", field)
    assert str(error).startswith(f"JobSpec 'send_email', {field}: ")
    assert re.search(bound, str(error)), str(error)
    assert fix in str(error)


@pytest.mark.parametrize(
    "fields",
    [
        {"p99": seconds(55)},
        {"batch_size": 8, "batch_concurrency": 4, "timeout": seconds(15)},
        {"max_concurrency": 2},
        {"max_concurrency": 1000},
        {"timeout": seconds(900), "batching_window": seconds(300), "max_attempts": 30},
        {"batch_size": 100, "batching_window": seconds(1)},
        {"fifo": True, "batch_size": 10},
        {"lease": seconds(3)},
        {"lease": seconds(900)},
        {"max_attempts": 32, "timeout": seconds(900)},
        {
            "max_attempts": 7,
            "backoff_base": timedelta(hours=11),
            "backoff_cap": timedelta(hours=11),
        },
        {"max_replays": 1},
        {"max_replays": 100},
        {"memory_mib": 128, "batch_concurrency": 500},
        {"memory_mib": 10_240, "batch_concurrency": 1, "p99": seconds(5)},
        {"key": "join('-', [tenant, id])"},
        {"key": "k" * 500},
        {"key": "detail.id || id"},
        {"publishers": ("012345678901", "sns", "events", "s3")},
        {"publishers": ("sns",), "fifo": True},
        {"environment": {"PATHS": "x", "LDAP_HOST": "x"}},
        {"environment": {"TEMPLATE": "x" * 2040}},
        {
            "permissions": (
                Allow(("s3:Get*",), ("arn:aws:s3:::a/${aws:username}/*",), wildcards="why"),
            )
        },
        {"permissions": (Allow(("ses:Send*",), ("*",), wildcards="why"),)},
        {"permissions": (Allow(("sns:Publish",), ("arn:{partition}:sns:{region}:{account}:a",)),)},
    ],
    ids=str,
)
def test_a_spec_on_its_bounds_is_accepted(fields: dict[str, Any]) -> None:
    JobSpec("send_email", **{"key": "email_id", **fields})


@pytest.mark.parametrize(
    "name",
    ["SendEmail", "send-email", "send__email", "_send", "send_", "2fa", "", "a" * 41, "send é"],
)
def test_a_name_that_is_not_snake_case_is_refused(name: str) -> None:
    error = refusal(name)
    assert (error.job, error.field) == (name, "name")
    assert "snake_case of at most 40 characters" in str(error)


def test_a_name_that_is_none_is_refused() -> None:
    error = refusal(None)  # type: ignore[arg-type]
    assert str(error).startswith("JobSpec None, name: None is not a string. Write it in quotes")


OF_LAMBDA = ["awslambdaric", "boto3", "botocore", "dateutil", "s3transfer", "six", "urllib3"]
OF_THE_LAYER = ["aws_lambda_powertools", "jmespath", "typing_extensions"]


@pytest.mark.parametrize(
    "name", ["email", "json", "import", "inspect", "redrive", *OF_LAMBDA, *OF_THE_LAYER]
)
def test_a_name_that_would_hide_a_module_from_the_worker_is_refused(name: str) -> None:
    assert f"Say what it does, as in 'send_{name}'" in str(refusal(name))


def test_a_job_called_replay_is_refused() -> None:
    error = refusal("replay")
    assert (error.job, error.field) == ("replay", "name")
    assert "its folder is that of the replay functions, and its ids are those of" in str(error)
    assert "Say what it does, as in 'replay_payment'" in str(error)

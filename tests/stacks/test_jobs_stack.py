"""The stack as a whole: names that others rely on, data that must survive, clean templates."""

from pathlib import Path

import pytest
from cfnlint.api import lint_file  # type: ignore[import-untyped]
from cfnlint.config import ManualArgs  # type: ignore[import-untyped]

from stacks.job_spec import JobSpec
from tests.stacks.conftest import SHOWCASE
from tests.stacks.synthesis import Synthesis, short, synthesize

HOLDS_DATA = (
    "AWS::DynamoDB::Table",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
    "AWS::SQS::Queue",
)

# A resource under another logical id is another resource: the old one is deleted, a queue with its
# messages, a table with its records. Change one of these only with a migration.
LOGICAL_IDS = {
    "IdempotencyTable22A5A209",
    "InspectLogGroup370C059D",
    "JobsTable1970BC16",
    "ReplayLogGroup8B74B61E",
    "SendEmailDeadLetterQueueF71A1962",
    "SendEmailLogGroup1BBDEAE9",
    "SendEmailQueueA47F8591",
}


def holding_data(synthesis: Synthesis) -> set[str]:
    resources = synthesis.template["Resources"]
    return {name for name, resource in resources.items() if resource["Type"] in HOLDS_DATA}


def policies(synthesis: Synthesis) -> set[tuple[str, str]]:
    return {
        (resource["DeletionPolicy"], resource["UpdateReplacePolicy"])
        for resource in synthesis.resources(*HOLDS_DATA).values()
    }


def test_logical_ids_are_those_of_the_first_release(dev: Synthesis, prod: Synthesis) -> None:
    assert holding_data(dev) >= LOGICAL_IDS
    assert holding_data(prod) >= LOGICAL_IDS


# A topic under another id has lost whoever subscribed to it; an alarm, its history and its mutes.
IDS_OF_ALARMS = {
    "NotifyTopic5FFA0016",
    "PageTopicD5E18B2D",
    "SendEmailAlarmsBacklog7B3F9749",
    "SendEmailAlarmsDeadLetterGrowth55D1695C",
    "SendEmailAlarmsWorkerErrors5CDDAFE9",
}


def test_alarms_and_topics_keep_their_ids(dev: Synthesis, prod: Synthesis) -> None:
    for synthesis in (dev, prod):
        resources = synthesis.template["Resources"]
        kinds = ("AWS::SNS::Topic", "AWS::CloudWatch::Alarm")
        names = {name for name, resource in resources.items() if resource["Type"] in kinds}
        assert names >= IDS_OF_ALARMS


def test_new_jobs_beside_it_leave_a_jobs_ids_alone(
    dev: Synthesis, local: Synthesis, tmp_path: Path
) -> None:
    assert set(dev.template["Resources"]) <= set(local.template["Resources"])
    before = JobSpec("send_email", key="email_id")
    ours = ("SendEmail", "JobsTable", "IdempotencyTable")
    alone = {name for name in dev.template["Resources"] if name.startswith(ours)}
    assert alone <= set(synthesize(tmp_path, *SHOWCASE, before).template["Resources"])


def test_the_key_has_one_id_too(keyed: Synthesis) -> None:
    assert "Key961B73FD" in holding_data(keyed)


def test_production_retains_its_data(prod: Synthesis, keyed: Synthesis) -> None:
    assert policies(prod) == policies(keyed) == {("Retain", "Retain")}


def test_other_stages_clean_up_after_themselves(
    dev: Synthesis, local: Synthesis, dev_with_key: Synthesis
) -> None:
    assert policies(dev) == policies(local) == policies(dev_with_key) == {("Delete", "Delete")}


def test_nothing_that_can_be_replaced_has_a_fixed_name(keyed: Synthesis) -> None:
    """But the parameter: its name is how publishers find the rest."""
    named = {
        short(name)
        for name, resource in keyed.resources().items()
        for field in resource["Properties"]
        if field
        in ("Name", "QueueName", "TableName", "RoleName", "LogGroupName", "ManagedPolicyName")
        or (field == "FunctionName" and resource["Type"] == "AWS::Lambda::Function")
    }
    assert named == {"SendInvoiceParameter", "BookSeatParameter"}


def test_outputs_are_those_that_others_rely_on(dev: Synthesis) -> None:
    assert dev.stack_name == "Redrive-dev"
    assert (
        dev.outputs().items()
        >= {
            "SendEmailQueueUrl": "<SendEmailQueue>",
            "SendEmailDeadLetterQueueUrl": "<SendEmailDeadLetterQueue>",
            "SendEmailWorkerName": "<SendEmailWorker>",
            "SendEmailPublishPolicyArn": "<SendEmailPublishPolicy>",
            "ReplayFunctionName": "<ReplayFunction>",
            "InspectFunctionName": "<InspectFunction>",
            "JobsTableName": "<JobsTable>",
            "IdempotencyTableName": "<IdempotencyTable>",
            "PageTopicArn": "<PageTopic>",
            "NotifyTopicArn": "<NotifyTopic>",
            "DashboardName": "<Dashboard>",
        }.items()
    )


def test_every_job_of_the_catalogue_has_its_outputs(local: Synthesis) -> None:
    assert local.stack_name == "Redrive-local"
    assert {f"{job}QueueUrl" for job in ("SendEmail", "Probe", "Long", "Ordered")} <= set(
        local.outputs()
    )
    assert len(local.outputs()) == 4 * 4 + 7


def test_the_local_stage_shortens_every_jobs_waits(local: Synthesis) -> None:
    for job in ("SendEmail", "Probe", "Long", "Ordered"):
        variables = local.properties(f"{job}Worker")["Environment"]["Variables"]
        assert variables["REDRIVE_STAGE"] == "local"
        assert variables["REDRIVE_BACKOFF_BASE_SECONDS"] == "0.5"
        assert variables["REDRIVE_BACKOFF_CAP_SECONDS"] == "2"


def test_the_local_stage_needs_none_of_the_roles_of_a_bootstrap(
    local: Synthesis, dev: Synthesis
) -> None:
    assert "assumeRoleArn" not in (local.folder / "manifest.json").read_text()
    assert "assumeRoleArn" in (dev.folder / "manifest.json").read_text()


@pytest.mark.parametrize("name", ["dev", "prod", "local", "showcase", "keyed", "dev_with_key"])
def test_cfn_lint_finds_nothing(name: str, request: pytest.FixtureRequest) -> None:
    synthesis: Synthesis = request.getfixturevalue(name)
    assert lint_file(synthesis.path, config=ManualArgs(regions=["eu-central-1"])) == []


@pytest.mark.parametrize("name", ["dev", "prod", "local", "showcase", "keyed", "dev_with_key"])
def test_cdk_nag_and_cdks_own_rules_find_nothing(name: str, request: pytest.FixtureRequest) -> None:
    synthesis: Synthesis = request.getfixturevalue(name)
    reports = synthesis.report["pluginReports"]
    assert "AwsSolutions" in {report["pluginName"] for report in reports}
    for report in reports:
        assert report["conclusion"] == "success", report
        assert [v for v in report["violations"] if v["severity"] != "info"] == []

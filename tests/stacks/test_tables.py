"""The tables, in every stage."""

from tests.stacks.synthesis import Synthesis

TABLES = ("IdempotencyTable", "JobsTable")


def test_the_idempotency_table_has_powertools_layout(dev: Synthesis) -> None:
    assert dev.properties("IdempotencyTable") == {
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
        "TimeToLiveSpecification": {"AttributeName": "expiration", "Enabled": True},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "DeletionProtectionEnabled": False,
    }


def test_the_jobs_table_keeps_several_records_of_a_job(dev: Synthesis) -> None:
    properties = dev.properties("JobsTable")
    assert properties["KeySchema"] == [
        {"AttributeName": "id", "KeyType": "HASH"},
        {"AttributeName": "record", "KeyType": "RANGE"},
    ]
    assert {a["AttributeType"] for a in properties["AttributeDefinitions"]} == {"S"}
    same = ("BillingMode", "TimeToLiveSpecification", "PointInTimeRecoverySpecification")
    idempotency = dev.properties("IdempotencyTable")
    assert {name: properties[name] for name in same} == {name: idempotency[name] for name in same}


def test_production_protects_its_tables_from_deletion(prod: Synthesis, keyed: Synthesis) -> None:
    for synthesis in (prod, keyed):
        for table in TABLES:
            properties = synthesis.properties(table)
            assert properties["DeletionProtectionEnabled"] is True
            recovery = properties["PointInTimeRecoverySpecification"]
            assert recovery == {"PointInTimeRecoveryEnabled": True}


def test_the_customer_managed_key_encrypts_both_tables(keyed: Synthesis) -> None:
    for table in TABLES:
        assert keyed.properties(table)["SSESpecification"] == {
            "SSEEnabled": True,
            "SSEType": "KMS",
            "KMSMasterKeyId": "<Key.Arn>",
        }

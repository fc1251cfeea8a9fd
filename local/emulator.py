"""MiniStack as we run it, in its own environment: what it does unlike AWS is put right here, each
with its reason, so that the templates and the code stay as AWS wants them.
"""

import json
import re
import sys
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.core import iam_actions  # type: ignore[import-not-found]
from ministack.services import cloudwatch  # type: ignore[import-not-found]

_extract_iam_action = iam_actions.extract_iam_action


def extract_iam_action(*request: Any) -> str | None:
    """IAM knows no `sqs:SendMessageBatch`: a batch call needs the single call's permission.

    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html
    """
    action: str | None = _extract_iam_action(*request)
    return action.removesuffix("Batch") if action and action.startswith("sqs:") else action


_dynamodb_transaction_checks = iam_actions.dynamodb_transaction_checks
_STATEMENT = re.compile(r'\s*(INSERT INTO|UPDATE)\s+"([^"]+)"')
_PARTIQL = {"INSERT INTO": "dynamodb:PartiQLInsert", "UPDATE": "dynamodb:PartiQLUpdate"}


def dynamodb_transaction_checks(
    action: str, body: bytes, region: str, account: str
) -> list[tuple[str, str]]:
    """IAM knows no `dynamodb:BatchExecuteStatement`: each statement needs its own permission.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-iam.html
    """
    if action != "dynamodb:BatchExecuteStatement":
        return list(_dynamodb_transaction_checks(action, body, region, account))
    checks = []
    for statement in json.loads(body)["Statements"]:
        found = _STATEMENT.match(statement["Statement"])
        # What this does not know is denied, rather than let through.
        verb, table = found.groups() if found else ("", "*")
        arn = f"arn:aws:dynamodb:{region}:{account}:table/{table}"
        checks.append((_PARTIQL.get(verb, "dynamodb:PartiQLUnknown"), arn))
    return checks


iam_actions.extract_iam_action = extract_iam_action
iam_actions.dynamodb_transaction_checks = dynamodb_transaction_checks
# It looks at neither dimensions nor M of N nor missing data: `local/cloudwatch.py` judges alarms.
cloudwatch._evaluate_alarm = lambda _: None  # noqa: SLF001
# As root it would also take 127.0.0.1:443, for Cognito tokens, which nothing here uses.
app._port_is_bindable = lambda *_: False  # noqa: SLF001

if __name__ == "__main__":
    sys.argv = ["ministack"]
    app.main()

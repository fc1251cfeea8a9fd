"""MiniStack as we run it, in its own environment: what it does unlike AWS is put right here, each
with its reason, so that the templates and the code stay as AWS wants them.
"""

import sys
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.core import iam_actions  # type: ignore[import-not-found]

_extract_iam_action = iam_actions.extract_iam_action


def extract_iam_action(*request: Any) -> str | None:
    """IAM knows no `sqs:SendMessageBatch`: a batch call needs the single call's permission.

    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html
    """
    action: str | None = _extract_iam_action(*request)
    return action.removesuffix("Batch") if action and action.startswith("sqs:") else action


iam_actions.extract_iam_action = extract_iam_action
# As root it would also take 127.0.0.1:443, for Cognito tokens, which nothing here uses.
app._port_is_bindable = lambda *_: False  # noqa: SLF001

if __name__ == "__main__":
    sys.argv = ["ministack"]
    app.main()

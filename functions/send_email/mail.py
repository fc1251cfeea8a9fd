"""One e-mail from a template, sent by SES v2.

If the function dies after SES said yes and before the result is saved, the mail is sent and nobody
remembers: the next run sends it again. SES has no idempotency token, so no code can close this
window (it is some milliseconds wide). Each mail carries the job's token as the header
`X-Redrive-Token`, by which a receiver, or a log of SES events, can tell the second from the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from botocore.exceptions import ClientError

from redrive import PermanentError

if TYPE_CHECKING:
    from mypy_boto3_sesv2 import SESV2Client


class InvalidEmail(PermanentError):
    """The payload is no e-mail that could be sent: a field or a template's value is missing or
    wrong.
    """


class EmailRejected(PermanentError):
    """SES will not send this mail, however often it is asked."""


@dataclass(frozen=True, slots=True)
class MailTemplate:
    """Subject and text, with `$name` where a value of the payload's `data` goes."""

    subject: Template
    text: Template


TEMPLATES: Final[Mapping[str, MailTemplate]] = {
    "receipt": MailTemplate(
        Template("Your receipt for order $order"),
        Template("Thank you for your order $order.\nTotal: $total\n"),
    ),
    "welcome": MailTemplate(
        Template("Welcome, $name"),
        Template("Hello $name,\nyour account is ready.\n"),
    ),
    "report": MailTemplate(
        Template("Your report for $period"),
        Template("Your report for $period is ready:\n$link\n"),
    ),
}

_HEADER_CHARACTERS: Final = 870

# Of SES's refusals, those that are about this mail; what is about the moment or the account
# (throttled, paused, over quota, no permission) heals without a change to the job, and is retried.
# https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html#API_SendEmail_Errors
_PERMANENT_CODES: Final = frozenset(
    {
        "BadRequestException",  # among others: no valid address
        "MessageRejected",
        "MailFromDomainNotVerifiedException",
        "NotFoundException",
    }
)


def send(
    payload: Mapping[str, Any], *, ses: "SESV2Client", sender: str, email_id: str, token: str
) -> dict[str, str]:
    """Sends the mail that the payload describes, and returns SES's message id.

    Raises InvalidEmail or EmailRejected where no retry can help, and what boto3 raises (throttled,
    unavailable, timed out) where one may.
    """
    recipient = _text(payload, "to")
    subject, text = _render(_text(payload, "template"), payload.get("data", {}))
    try:
        response = ses.send_email(
            FromEmailAddress=sender,
            Destination={"ToAddresses": [recipient]},
            Content={
                "Simple": {
                    "Subject": {"Data": subject, "Charset": "UTF-8"},
                    "Body": {"Text": {"Data": text, "Charset": "UTF-8"}},
                    "Headers": [
                        {"Name": "X-Email-Id", "Value": _header(email_id)},
                        {"Name": "X-Redrive-Token", "Value": _header(token)},
                    ],
                }
            },
        )
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _PERMANENT_CODES:
            raise EmailRejected(f"{code}: {error.response['Error'].get('Message', '')}") from error
        raise
    return {"ses_message_id": response["MessageId"]}


def _render(name: str, data: Any) -> tuple[str, str]:
    template = TEMPLATES.get(name)
    if template is None:
        raise InvalidEmail(f"no template {name!r}; there are {', '.join(TEMPLATES)}")
    if not isinstance(data, Mapping):
        raise InvalidEmail("`data` must be an object of the template's values")
    try:
        subject, text = template.subject.substitute(data), template.text.substitute(data)
    except KeyError as missing:
        raise InvalidEmail(f"template {name!r} needs `data.{missing.args[0]}`") from None
    # A subject is one line: a value with a line break must not add headers to the mail.
    return " ".join(subject.split()), text


def _text(payload: Mapping[str, Any], field: str) -> str:
    value = payload.get(field)
    if not isinstance(value, str) or not value.strip():
        raise InvalidEmail(f"`{field}` must be a non-empty string")
    return value


def _header(value: str) -> str:
    # SES takes printable ASCII, and not much of it:
    # https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_MessageHeader.html
    return quote(value, safe=" !#$&'()*+,/:;=?@[]-._~|")[:_HEADER_CHARACTERS]

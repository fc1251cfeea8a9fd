"""Our Signature Version 4 beside botocore's."""

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from replay.signature import Signer

_text = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1)


@given(
    body=st.binary(),
    credentials=st.builds(Credentials, _text, st.text(min_size=1), st.none() | _text),
    host=st.sampled_from(["sqs.eu-west-1.amazonaws.com", "127.0.0.1:4566"]),
)
def test_a_request_has_botocores_signature(body, credentials, host):
    headers = {
        "X-Amz-Target": "AmazonSQS.ReceiveMessage",
        "User-Agent": "redrive/test",
        "Host": host,
    }

    ours = Signer(credentials, "eu-west-1", "sqs").sign(headers, body)

    assert ours == signed_by_botocore(credentials, headers, body, ours["X-Amz-Date"])


def signed_by_botocore(credentials, headers, body, date):
    class At(auth.SigV4Auth):
        """At the moment of the other signature."""

        def _modify_request_before_signing(self, request):
            request.context["timestamp"] = date
            super()._modify_request_before_signing(request)

    request = AWSRequest("POST", f"https://{headers['Host']}/", headers, body)
    At(credentials, "sqs", "eu-west-1").add_auth(request)
    return {name: value for name, value in request.headers.items() if name not in headers}


def test_a_new_day_and_a_new_secret_have_a_new_key(monkeypatch):
    headers = {"User-Agent": "redrive/test", "Host": "sqs.eu-west-1.amazonaws.com"}
    credentials = Credentials("AKIAEXAMPLE", "secret")
    signer = Signer(credentials, "eu-west-1", "sqs")

    for date, secret in (
        ("20261129T235959Z", "secret"),
        ("20261129T235959Z", "secret"),
        ("20261130T000000Z", "secret"),
        ("20261130T000000Z", "another"),
    ):
        credentials.secret_key = secret
        monkeypatch.setattr("replay.signature.time.strftime", lambda *_, date=date: date)
        ours = signer.sign(headers, b"{}")

        assert ours == signed_by_botocore(credentials, headers, b"{}", date)

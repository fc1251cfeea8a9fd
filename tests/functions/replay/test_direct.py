"""The busiest calls without botocore: the same requests, the same answers, the same errors."""

import json
import logging
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
import trustme
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import SSLError

from local.certificates import write_certificates
from redrive.testing import lambda_context
from replay.direct import direct
from replay.event import ACTIONS
from replay.function import ReplayFunction
from replay.settings import Settings

QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/work-dead"
METHODS = {
    "sqs": ("receive_message", "send_message_batch", "delete_message_batch"),
    "dynamodb": ("batch_get_item",),
}
OURS, BOTOCORE = "redrive/test", "botocore"
KEYS = Credentials("AKIAEXAMPLE", "secret")

# --- a service that answers as it is told ---------------------------------------------------------

CLOSES = None
"""The connection, instead of an answer."""
SILENT = ()
"""Until the test ends."""


@dataclass
class Service:
    """Gives these answers in turn, the last one for ever: status, body, and headers if any."""

    answers: list[Any]
    url: str = ""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    clients: set[Any] = field(default_factory=set)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def callers(self) -> list[str]:
        """Who made each call."""
        agents = [headers["user-agent"] for _, headers, _ in self.requests]
        return [OURS if agent == OURS else BOTOCORE for agent in agents]

    def answer(self, path: str, headers: dict[str, str], body: Any) -> Any:
        self.requests.append((path, headers, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == SILENT:
            self.ended.wait()
        return answer


@contextmanager
def serving(*answers: Any, certificates=None, service: Service | None = None):
    service = service or Service(list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            service.clients.add(self.client_address)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = service.answer(self.path, headers, body)
            if not answer:
                self.close_connection = True
                return
            status, text, *more = answer
            self.send_response(status)
            headers = {"Content-Length": len(text)} | dict(*more)
            for name, value in headers.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # who does not trust it hangs up
    scheme = "http"
    if certificates:
        scheme, context = "https", ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.certificate, certificates.key)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    service.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        service.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


def plain_client(service, name="sqs", region="eu-west-1", **settings):
    return boto3.client(
        name,
        endpoint_url=service.url,
        region_name=region,
        aws_access_key_id=KEYS.access_key,
        aws_secret_access_key=KEYS.secret_key,
        config=Config(
            user_agent_extra=OURS, retries={"total_max_attempts": 1, "mode": "standard"}, **settings
        ),
    )


def direct_client(service, name="sqs", credentials=KEYS, **settings):
    return direct(plain_client(service, name, **settings), credentials, *METHODS[name])


def ok(**answer):
    return 200, json.dumps(answer).encode()


def refused(code, status=400):
    return status, json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": "no"}).encode()


# --- what is asked --------------------------------------------------------------------------------

SEND = {
    "QueueUrl": QUEUE,
    "Entries": [
        {
            "Id": "0",
            "MessageBody": '{"id": "ärger \ud83d\ude00"}',
            "MessageAttributes": {
                "text": {"DataType": "String", "StringValue": "ü"},
                "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("name", "method", "parameters"),
    [
        ("sqs", "receive_message", {"QueueUrl": QUEUE, "MessageAttributeNames": ["All"]}),
        ("sqs", "send_message_batch", SEND),
        (
            "sqs",
            "delete_message_batch",
            {"QueueUrl": QUEUE, "Entries": [{"Id": "0", "ReceiptHandle": "r"}]},
        ),
        (
            "dynamodb",
            "batch_get_item",
            {"RequestItems": {"jobs": {"Keys": [{"id": {"S": "a"}, "b": {"B": b"\x00\xff"}}]}}},
        ),
    ],
)
def test_the_service_is_asked_the_same_as_by_boto3(name, method, parameters):
    with serving(ok()) as service:
        getattr(direct_client(service, name, region="us-east-2"), method)(**parameters)
        getattr(plain_client(service, name, region="us-east-2"), method)(**parameters)

    (path, headers, body), (path_of_boto3, headers_of_boto3, body_of_boto3) = service.requests
    assert (path, body) == (path_of_boto3, body_of_boto3)
    for header in ("x-amz-target", "content-type", "host", "x-amzn-query-mode"):
        assert headers.get(header) == headers_of_boto3.get(header)
    # The scope and the names of the signed headers too.
    signed, signed_by_boto3 = (
        one["authorization"].partition(" Signature=")[0] for one in (headers, headers_of_boto3)
    )
    assert signed == signed_by_boto3
    assert service.callers == [OURS, BOTOCORE]


def test_credentials_that_changed_are_used():
    credentials = Credentials("AKIAFIRST", "first")
    with serving(ok()) as service:
        client = direct_client(service, credentials=credentials)
        client.receive_message(QueueUrl=QUEUE)
        credentials.access_key, credentials.token = "ASIASECOND", "session"
        client.receive_message(QueueUrl=QUEUE)

    first, second = (headers for _, headers, _ in service.requests)
    assert "AKIAFIRST" in first["authorization"]
    assert "x-amz-security-token" not in first
    assert "ASIASECOND" in second["authorization"]
    assert second["x-amz-security-token"] == "session"


# --- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method", "answer"),
    [
        ("sqs", "receive_message", {}),
        (
            "sqs",
            "receive_message",
            {
                "Messages": [
                    {
                        "MessageId": "m",
                        "Body": '{"BinaryValue": "AP8="}',
                        "Attributes": {"SentTimestamp": "1"},
                        "MessageAttributes": {
                            "B": {"DataType": "Binary.gzip", "BinaryValue": "AP8="},
                            "text": {"DataType": "String", "StringValue": "AP8="},
                        },
                    }
                ]
            },
        ),
        (
            "sqs",
            "send_message_batch",
            {
                "Successful": [{"Id": "0", "MessageId": "m", "MD5OfMessageBody": "d"}],
                "Failed": [{"Id": "1", "Code": "InternalError", "SenderFault": False}],
            },
        ),
        ("sqs", "send_message_batch", {"Successful": [{"Id": "0"}], "Failed": None}),
        ("sqs", "delete_message_batch", {"Successful": [{"Id": "0"}]}),
        (
            "dynamodb",
            "batch_get_item",
            {
                "Responses": {"jobs": [{"id": {"S": "a"}, "n": {"N": "1"}, "b": {"B": "AP8="}}]},
                "UnprocessedKeys": {},
            },
        ),
    ],
)
def test_the_answer_is_as_boto3_has_it(name, method, answer):
    parameters: Any = {"RequestItems": {}} if name == "dynamodb" else {"QueueUrl": QUEUE}
    if "batch" in method and name == "sqs":
        parameters["Entries"] = []
    with serving(ok(**answer)) as service:
        ours = getattr(direct_client(service, name), method)(**parameters)
        expected = getattr(plain_client(service, name), method)(**parameters)

    del expected["ResponseMetadata"]
    assert ours == expected
    assert service.callers == [OURS, BOTOCORE]


# --- what boto3 does instead ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        refused("ServiceUnavailable", 503),
        (302, b"{}"),
        (200, b"{"),
        (200, b"[]"),
        (200, b"{}", {"Content-Length": 3, "Connection": "close"}),  # cut off
        CLOSES,
    ],
    ids=str,
)
def test_a_call_that_does_not_succeed_is_made_by_botocore(trouble):
    with serving(trouble, ok(Messages=[{"MessageId": "m"}])) as service:
        answer = direct_client(service).receive_message(QueueUrl=QUEUE)

    assert answer["Messages"] == [{"MessageId": "m"}]
    assert service.callers == [OURS, BOTOCORE]


def test_an_error_is_boto3s_own():
    with serving(refused("OverLimit")) as service:
        client = direct_client(service)
        with pytest.raises(client.exceptions.OverLimit):
            client.receive_message(QueueUrl=QUEUE)


def test_what_json_cannot_hold_is_for_boto3_to_refuse():
    with serving(ok()) as service, pytest.raises(TypeError):
        direct_client(service, parameter_validation=False).receive_message(QueueUrl=object())

    assert not service.requests


def test_an_answer_that_takes_too_long_is_asked_for_again():
    with serving(SILENT, ok()) as service:
        direct_client(service, read_timeout=0.05).receive_message(QueueUrl=QUEUE)

    assert service.callers == [OURS, BOTOCORE]


def test_the_service_is_named_as_its_url_has_it():
    with serving(ok()) as service:
        service.url = service.url.replace("127.0.0.1", "LOCALHOST")
        direct_client(service).receive_message(QueueUrl=QUEUE)

    ((_, headers, _),) = service.requests
    assert headers["host"] == service.url.removeprefix("http://")


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr("replay.direct._FAILURES_ON_END", 3)


class WithoutUs(Service):
    """Only botocore's calls are answered with success."""

    def answer(self, path, headers, body):
        self.requests.append((path, headers, body))
        return refused("AccessDenied", 403) if headers["user-agent"] == OURS else ok()


@pytest.mark.usefixtures("_impatient")
def test_where_no_call_but_botocores_succeeds_it_makes_them_all(caplog):
    with serving(service=WithoutUs([])) as service:
        client = direct_client(service)
        for _ in range(5):
            client.receive_message(QueueUrl=QUEUE)

    assert service.callers == [OURS, BOTOCORE] * 3 + [BOTOCORE] * 2
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "botocore makes every call" in record.message
    assert "403" in record.message


@pytest.mark.usefixtures("_impatient")
def test_what_fails_for_botocore_too_changes_nothing():
    with serving(refused("OverLimit")) as service:
        client = direct_client(service)
        for _ in range(5):
            with pytest.raises(client.exceptions.OverLimit):
                client.receive_message(QueueUrl=QUEUE)

    assert service.callers == [OURS, BOTOCORE] * 5


@pytest.mark.usefixtures("_impatient")
def test_calls_that_fail_now_and_then_change_nothing():
    trouble = refused("ServiceUnavailable", 503)
    # Of each three calls two fail here, and botocore's succeed.
    with serving(*[trouble, ok(), trouble, ok(), ok()] * 4) as service:
        client = direct_client(service)
        for _ in range(12):
            client.receive_message(QueueUrl=QUEUE)

    assert service.callers.count(OURS) == 12


@pytest.fixture
def connected(monkeypatch):
    """The connections that were made, with the time that each might take."""
    made, connect = [], HTTPConnection.connect

    def noted(connection):
        if connection.__class__ is HTTPConnection:  # botocore has a class of its own
            made.append(connection.timeout)
        connect(connection)

    monkeypatch.setattr(HTTPConnection, "connect", noted)
    return made


def test_as_many_connections_as_are_in_use_are_kept(connected):
    all_are_there = threading.Barrier(4)

    class Busy(Service):
        def answer(self, path, headers, body):
            self.requests.append((path, headers, body))
            all_are_there.wait(20)
            return ok()

    with serving(service=Busy([])) as service, ThreadPoolExecutor(4) as pool:
        client = direct_client(service, connect_timeout=3)
        for _ in range(2):
            list(pool.map(lambda _: client.receive_message(QueueUrl=QUEUE), range(4)))

    assert connected == [3] * 4
    assert service.callers == [OURS] * 8


def test_a_connection_that_was_idle_for_long_is_not_used_again(connected, monkeypatch):
    with serving(ok()) as service:
        client = direct_client(service)
        for now in (0, 9, 18, 28):
            monkeypatch.setattr("replay.connections.time.monotonic", lambda now=now: now)
            client.receive_message(QueueUrl=QUEUE)

    assert len(connected) == 2
    assert service.callers == [OURS] * 4


def test_a_connection_that_the_service_ends_is_not_used_again(connected):
    with serving((200, b"{}", {"Connection": "close"})) as service:
        client = direct_client(service)
        for _ in range(2):
            client.receive_message(QueueUrl=QUEUE)

    assert len(connected) == 2
    assert service.callers == [OURS] * 2


@pytest.mark.usefixtures("_impatient")
def test_all_that_a_freeze_has_broken_is_made_good_by_botocore():
    with serving(*[CLOSES, ok()] * 2, ok()) as service:
        client = direct_client(service)
        for _ in range(3):
            client.receive_message(QueueUrl=QUEUE)

    assert service.callers == [OURS, BOTOCORE] * 2 + [OURS]


def test_all_else_is_the_clients_own():
    with serving(ok(Attributes={"ApproximateNumberOfMessages": "3"})) as service:
        client = direct_client(service)
        answer = client.get_queue_attributes(QueueUrl=QUEUE, AttributeNames=["All"])

    assert answer["Attributes"] == {"ApproximateNumberOfMessages": "3"}
    assert client.meta.region_name == "eu-west-1"
    assert service.callers == [BOTOCORE]


def test_without_credentials_the_client_stays_as_it_is():
    client = plain_client(Service([], "http://127.0.0.1:4566"))

    assert direct(client, None, "receive_message") is client


def test_an_endpoint_with_a_path_is_for_botocore():
    client = plain_client(Service([], "http://127.0.0.1:4566/sqs"))

    assert direct(client, KEYS, "receive_message") is client


def test_certificates_that_cannot_be_read_are_for_botocore_to_complain_of(monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/file")
    client = plain_client(Service([], "https://127.0.0.1:4566"))

    assert direct(client, KEYS, "receive_message") is client


def test_behind_a_proxy_the_client_stays_as_it_is(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("no_proxy", "example.com")
    behind = plain_client(Service([], "https://sqs.eu-west-1.amazonaws.com"))
    beside = plain_client(Service([], "https://sqs.example.com"))

    assert direct(behind, KEYS, "receive_message") is behind
    assert direct(beside, KEYS, "receive_message") is not beside


# --- TLS ------------------------------------------------------------------------------------------


def test_a_server_that_nobody_vouches_for_is_told_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    certificates = write_certificates(tmp_path)
    with serving(ok(), certificates=certificates) as service, pytest.raises(SSLError):
        direct_client(service).receive_message(QueueUrl=QUEUE)

    assert not service.requests


def test_a_server_of_another_name_is_told_nothing(tmp_path, monkeypatch):
    authority, certificates = trustme.CA(), write_certificates(tmp_path)
    other = authority.issue_cert("example.test")
    authority.cert_pem.write_to_path(certificates.authority)
    certificates.certificate.write_bytes(b"".join(one.bytes() for one in other.cert_chain_pems))
    other.private_key_pem.write_to_path(certificates.key)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates.authority))
    with serving(ok(), certificates=certificates) as service, pytest.raises(SSLError):
        direct_client(service).receive_message(QueueUrl=QUEUE)

    assert not service.requests


def test_certificates_of_ones_own_are_trusted_as_botocore_trusts_them(tmp_path, monkeypatch):
    certificates = write_certificates(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates.authority))
    large = {"Messages": [{"Body": "x" * 300_000}]}
    with serving(ok(), ok(**large), ok(), certificates=certificates) as service:
        client = direct_client(service)
        answers = [client.receive_message(QueueUrl=QUEUE) for _ in range(3)]

    assert answers == [{}, large, {}]
    assert service.callers == [OURS] * 3
    assert len(service.clients) == 1


# --- who uses it ----------------------------------------------------------------------------------


class DeadLetterQueue(Service):
    """A service with one dead letter, and all that a replay asks besides."""

    def answer(self, path, headers, body):
        operation = headers["x-amz-target"].split(".")[-1]
        self.requests.append((operation, headers, body))
        answers = {
            "GetParameter": {"Parameter": {"Value": json.dumps(PARAMETER)}},
            "GetQueueAttributes": {
                "Attributes": {
                    "ApproximateNumberOfMessages": "1",
                    "ApproximateNumberOfMessagesNotVisible": "0",
                }
            },
            "BatchGetItem": {"Responses": {}},
            "ReceiveMessage": {"Messages": self.answers},
            "SendMessageBatch": {"Successful": [{"Id": "0", "MessageId": "new"}]},
            "DeleteMessageBatch": {"Successful": [{"Id": "0"}]},
        }
        if operation == "ReceiveMessage":
            self.answers = []
        return ok(**answers.get(operation, {}))


PARAMETER = {
    "version": 1,
    "job": "work",
    "key": "id",
    "queues": {"normal": QUEUE.removesuffix("-dead")},
    "dead_letter_queue": QUEUE,
    "fifo": False,
    "limits": {"max_message_bytes": 1_048_576, "max_replays": 3},
}
LETTER = {
    "MessageId": "m",
    "ReceiptHandle": "r",
    "Body": '{"id": "a"}',
    "Attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1"},
}


def test_a_replay_makes_its_busiest_calls_without_botocore(monkeypatch):
    settings = Settings(
        stage="test",
        jobs=("work",),
        idempotency_table="idempotency",
        jobs_table="jobs",
        lease_seconds=60,
    )
    with serving(service=DeadLetterQueue([LETTER])) as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL", service.url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)
        replay = ReplayFunction(ACTIONS, settings=settings)
        answer = replay({"job": "work", "action": "replay", "reason": "t"}, lambda_context())

    assert answer["replayed"] == 1
    directly = {
        operation
        for operation, headers, _ in service.requests
        if headers["user-agent"].startswith("redrive/")
    }
    assert directly == {
        "ReceiveMessage",
        "BatchGetItem",
        "SendMessageBatch",
        "DeleteMessageBatch",
    }

"""A client's busiest calls at less CPU, which is what bounds a replay.

Most of what botocore takes for a call goes into building, signing and parsing, of which a plain
call of a service that speaks JSON needs little. Here, one that succeeds is made without it.
Whatever else comes of one is left to botocore, which makes the call again, repeats it, and raises
its own errors.
"""

import base64
import hashlib
import hmac
import json
import logging
import os
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from botocore.credentials import Credentials
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

# More than the connections that may be broken at once, by a freeze of the Lambda for one.
_FAILURES_ON_END: Final = 100

# One that was idle for longer may have been closed by the service, or be from before a freeze.
_IDLE_SECONDS: Final = 10

_logger = logging.getLogger(__name__)


def direct(client: Any, credentials: Credentials | None, *methods: str) -> Any:
    """The client, with these methods made faster; `credentials` are those of its session.

    For SQS and DynamoDB. What such a method returns is as boto3 has it, without
    `ResponseMetadata`. A call that fails may be made once more than the client's settings say.

    Without credentials, behind a proxy, for an endpoint with a path, and with certificates that
    cannot be read, it is the client itself.
    """
    url = urlsplit(client.meta.endpoint_url)
    has_proxy = url.scheme in get_environ_proxies(client.meta.endpoint_url)
    if credentials is None or has_proxy or url.path.strip("/"):
        return client
    try:
        return _Direct(client, credentials, methods)
    except OSError:
        return client


class _Direct:
    """All else is the client's own."""

    def __init__(self, client: Any, credentials: Credentials, methods: tuple[str, ...]) -> None:
        self._client = client
        self._failures, self._is_off = 0, False
        meta = client.meta
        model, config = meta.service_model, meta.config
        self._url = urlsplit(meta.endpoint_url)
        self._connections = Connections(
            self._url, connect_timeout=config.connect_timeout, read_timeout=config.read_timeout
        )
        self._signer = Signer(credentials, meta.region_name, model.signing_name)
        self._target = model.metadata["targetPrefix"]
        self._headers = {
            "Host": self._url.netloc,
            "Content-Type": f"application/x-amz-json-{model.metadata['jsonVersion']}",
            "User-Agent": config.user_agent_extra or "redrive",
        }
        if "awsQueryCompatible" in model.metadata:
            self._headers["x-amzn-query-mode"] = "true"
        for method in methods:
            operation = meta.method_to_api_mapping[method]
            setattr(self, method, partial(self._call, operation, getattr(client, method)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _call(self, operation: str, plain: Callable[..., Any], **parameters: Any) -> Any:
        if self._is_off:
            return plain(**parameters)
        try:
            answer = self._post(operation, json.dumps(parameters, default=_base64).encode())
        except Exception as error:
            answer = plain(**parameters)  # what fails there too, is not for want of botocore
            self._note_failure(error)
            return answer
        self._failures = 0
        return answer

    def _post(self, operation: str, body: bytes) -> Any:
        headers = {"X-Amz-Target": f"{self._target}.{operation}", **self._headers}
        headers |= self._signer.sign(headers, body)
        status, answer = self._connections.post(body, headers)
        if status != 200:
            raise ValueError(f"HTTP status {status}")
        return _read(answer)

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= _FAILURES_ON_END and not self._is_off:
            self._is_off = True
            _logger.warning(
                "from now on botocore makes every call to %s: %r", self._url.geturl(), error
            )


class Connections:
    """Those to the service at `url`, which are kept open; times are in seconds."""

    def __init__(self, url: SplitResult, *, connect_timeout: float, read_timeout: float) -> None:
        # The certificates are read once: botocore does it for each connection, in 20 ms.
        kind: Any = (
            partial(HTTPSConnection, context=_tls()) if url.scheme == "https" else HTTPConnection
        )
        self._new = partial(kind, url.hostname, url.port, timeout=connect_timeout)
        self._read_timeout = read_timeout
        # The last one used is taken first, with the time of its use.
        self._idle: deque[tuple[float, HTTPConnection]] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """The answer's status and body; raises what `http.client` and sockets raise."""
        connection = self._take()
        try:
            connection.request("POST", "/", body, headers)
            response = connection.getresponse()
            answer = response.read()
        except BaseException:
            connection.close()
            raise
        if not response.will_close:
            self._idle.append((time.monotonic(), connection))
        return response.status, answer

    def _take(self) -> HTTPConnection:
        with suppress(IndexError):  # there is none, or no more
            while True:
                used_at, connection = self._idle.pop()
                if time.monotonic() - used_at < _IDLE_SECONDS:
                    return connection
                connection.close()
        return self._connect()

    def _connect(self) -> HTTPConnection:
        connection: HTTPConnection = self._new()
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.sock.settimeout(self._read_timeout)
        return connection


class Signer:
    """Signature Version 4 of a POST to the path `/`.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
    """

    def __init__(self, credentials: Credentials, region: str, service: str) -> None:
        self._credentials = credentials
        self._scope = f"{region}/{service}/aws4_request"
        self._key: tuple[tuple[str, str], bytes] = ("", ""), b""

    def sign(self, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """The headers that a request with these headers, `Host` among them, needs besides."""
        credentials = self._credentials.get_frozen_credentials()
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        added = {"X-Amz-Date": now}
        if credentials.token:
            added["X-Amz-Security-Token"] = credentials.token
        signed = {name.lower(): value for name, value in (headers | added).items()}
        del signed["user-agent"]  # a proxy may change it
        names = ";".join(sorted(signed))
        lines = "\n".join(f"{name}:{signed[name]}" for name in sorted(signed))
        request = f"POST\n/\n\n{lines}\n\n{names}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{now[:8]}/{self._scope}"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = self._key_for(str(credentials.secret_key), scope)
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        added["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return added

    def _key_for(self, secret: str, scope: str) -> bytes:
        """The key that is good for a day."""
        made_for, key = self._key
        if made_for != (secret, scope):
            key = f"AWS4{secret}".encode()
            for part in scope.split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = (secret, scope), key
        return key


def _close_all(idle: deque[tuple[float, HTTPConnection]]) -> None:
    for _, connection in idle:
        connection.close()


def _tls() -> ssl.SSLContext:
    cafile = os.environ.get("AWS_CA_BUNDLE") or get_cert_path(verify=True)
    return ssl.create_default_context(cafile=cafile)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# SQS's message attributes, and DynamoDB's values.
_BINARY: Final = ("BinaryValue", "B")


def _read(answer: bytes) -> Any:
    """The answer's JSON; what is binary in it is base64 there, and bytes in boto3."""
    has_binary = any(b'"%b":' % name.encode() in answer for name in _BINARY)
    fields = json.loads(answer, object_hook=_with_bytes if has_binary else None)
    return {name: value for name, value in fields.items() if value is not None}


def _with_bytes(fields: dict[str, Any]) -> dict[str, Any]:
    for name in _BINARY:
        if isinstance(fields.get(name), str):
            fields[name] = base64.b64decode(fields[name])
    return fields

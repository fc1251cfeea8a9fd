"""A client's busiest calls at less CPU, which is what bounds a replay.

Most of what botocore takes for a call goes into building, signing and parsing, of which a plain
call of a service that speaks JSON needs little. Here, one that succeeds is made without it.
Whatever else comes of one is left to botocore, which makes the call again, repeats it, and raises
its own errors.
"""

import base64
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.credentials import Credentials
from botocore.utils import get_environ_proxies

from replay.connections import Connections
from replay.signature import Signer

# More than the connections that may be broken at once, by a freeze of the Lambda for one.
_FAILURES_ON_END: Final = 100

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
        return _read(self._connections.post(body, headers))

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= _FAILURES_ON_END and not self._is_off:
            self._is_off = True
            _logger.warning(
                "from now on botocore makes every call to %s: %r", self._url.geturl(), error
            )


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

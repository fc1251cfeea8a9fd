"""Calls over kept connections: HTTP/1.1 as AWS's services speak it, and no more of it.

An answer is a success that says its length, or it is refused. `http.client`, which reads any that
HTTP allows, takes much more CPU.
"""

import os
import re
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from typing import Any, Final
from urllib.parse import SplitResult

from botocore.httpsession import get_cert_path
from urllib3.util import wait_for_read

# One that was idle for longer may have been closed by the service, or be from before a freeze.
_IDLE_SECONDS: Final = 10

# More than a TLS record holds: of one that was read, nothing is left unread.
_READ_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 64 * 1024
_HEAD: Final = re.compile(
    rb"http/1\.1 ([0-9]{3})(?: [^\r\n]*)?\r\n"
    rb"(?:[!-9;-~]+:[^\r\n]*\r\n)*"  # no space before a colon, and no folded line
)
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n")
_CLOSE: Final = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n")


class UnreadableAnswer(Exception):
    """It may be HTTP, but not of the kind that is read here."""


class Connections:
    """The connections to the service at `url`, which are kept open; times are in seconds."""

    def __init__(self, url: SplitResult, *, connect_timeout: float, read_timeout: float) -> None:
        # The certificates are read once: botocore does it for each connection.
        kind: Any = (
            partial(HTTPSConnection, context=_tls()) if url.scheme == "https" else HTTPConnection
        )
        self._new = partial(kind, url.hostname, url.port, timeout=connect_timeout)
        self._read_timeout = read_timeout
        # The last one used is taken first, with the time of its use.
        self._idle: deque[tuple[float, HTTPConnection]] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def post(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """The body of the answer to a request to the path `/`.

        Raises OSError; UnreadableAnswer, for any status but 200 too; and ValueError for a header
        that cannot be sent.
        """
        request = _request(body, headers)
        connection = self._take()
        try:
            connection.sock.sendall(request)
            answer, stays_open = _read(connection.sock)
        except BaseException:
            connection.close()
            raise
        if stays_open:
            self._idle.append((time.monotonic(), connection))
        else:
            connection.close()
        return answer

    def _take(self) -> HTTPConnection:
        with suppress(IndexError):  # there is none, or no more
            while True:
                used_at, connection = self._idle.pop()
                is_fresh = time.monotonic() - used_at < _IDLE_SECONDS
                # What comes unasked is its end, or would be taken for the answer to what is next.
                if is_fresh and not wait_for_read(connection.sock, timeout=0):
                    return connection
                connection.close()
        return self._connect()

    def _connect(self) -> HTTPConnection:
        connection: HTTPConnection = self._new()
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.sock.settimeout(self._read_timeout)
        return connection


def _close_all(idle: deque[tuple[float, HTTPConnection]]) -> None:
    for _, connection in idle:
        connection.close()


def _tls() -> ssl.SSLContext:
    cafile = os.environ.get("AWS_CA_BUNDLE") or get_cert_path(verify=True)
    return ssl.create_default_context(cafile=cafile)


def _request(body: bytes, headers: Mapping[str, str]) -> bytes:
    """All of it at once: a call for the head and one for the body would be two packets."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError("a header with a line break")
    head = f"POST / HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


def _read(sock: socket.socket) -> tuple[bytes, bool]:
    """An answer's body, and whether the connection stays open."""
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        if len(received) > _HEAD_BYTES:
            raise UnreadableAnswer("its head does not end")
        received += _receive(sock)
    head = received[: end + 2].lower()
    parts = [received[end + 4 :]]
    missing = _length(head) - len(parts[0])
    while missing > 0:
        parts.append(_receive(sock))
        missing -= len(parts[-1])
    if missing < 0:
        raise UnreadableAnswer("more than it says")
    return b"".join(parts), not _CLOSE.search(head)


def _length(head: bytes) -> int:
    plain, length = _HEAD.fullmatch(head), _LENGTH.search(head)
    if not plain:
        raise UnreadableAnswer("no HTTP/1.1")
    if plain[1] != b"200":
        raise UnreadableAnswer(f"HTTP status {plain[1].decode()}")
    if not length or head.count(b"\r\ncontent-length:") != 1 or b"\r\ntransfer-encoding:" in head:
        raise UnreadableAnswer("it does not say its length")
    return int(length[1])


def _receive(sock: socket.socket) -> bytes:
    received = sock.recv(_READ_BYTES)
    if not received:
        raise ConnectionError("closed in the middle of an answer")
    return received

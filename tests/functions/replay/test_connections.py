"""Requests and answers as bytes: what is read, what is refused, and which connections are kept."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from replay.connections import Connections, UnreadableAnswer

LATER = object()


class Service:
    """Answers each request with the next of these: pieces, each sent by itself, or the connection's
    end where one is None. LATER sends the rest when the test says so.
    """

    def __init__(self, *answers: list[Any]) -> None:
        self.answers, self.requests, self.connections = list(answers), list[bytes](), 0
        self._later, self._done = threading.Event(), threading.Event()

    def send_the_rest(self) -> None:
        self._later.set()
        assert self._done.wait(20)


@contextmanager
def serving(*answers: list[Any]) -> Iterator[tuple[Service, Connections]]:
    service = Service(*answers)

    class Handler(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self):
            service.connections += 1
            while first := self.rfile.readline():
                head = [first, *iter(self.rfile.readline, b"\r\n")]
                (length,) = (one for one in head if one.startswith(b"Content-Length: "))
                body = self.rfile.read(int(length.split()[1]))
                service.requests.append(b"".join(head) + b"\r\n" + body)
                for piece in service.answers.pop(0):
                    if piece is LATER:
                        service._later.wait(20)
                    elif piece is None:
                        self.connection.shutdown(socket.SHUT_RDWR)
                    else:
                        self.wfile.write(piece)
                if service._later.is_set():
                    service._done.set()

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True  # of connections that are kept
    server.handle_error = lambda *_: None  # who reads no more hangs up
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = urlsplit(f"http://127.0.0.1:{server.server_address[1]}")
    connections = Connections(url, connect_timeout=5, read_timeout=5)
    try:
        yield service, connections
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(body=b"{}", *headers, status=b"HTTP/1.1 200 OK", length=None):
    lines = [status, *headers, b"Content-Length: %d" % (len(body) if length is None else length)]
    return b"\r\n".join([*lines, b"", body])


PLAIN = answer()


def test_a_request_is_sent_as_it_stands():
    with serving([PLAIN]) as (service, connections):
        connections.post(b'{"a": 1}', {"Host": "sqs", "X-Amz-Date": "now"})

    assert service.requests == [
        b'POST / HTTP/1.1\r\nHost: sqs\r\nX-Amz-Date: now\r\nContent-Length: 8\r\n\r\n{"a": 1}'
    ]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([answer(b'{"a": 1}')], b'{"a": 1}'),
        ([bytes([one]) for one in answer(b'{"a": 1}', b"Server: Server")], b'{"a": 1}'),
        ([answer(b"x" * 3_000_000)], b"x" * 3_000_000),
        ([answer(b"")], b""),
        ([answer(b"\r\n\r\n")], b"\r\n\r\n"),
        ([b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH:2 \r\nDate: x\r\n\r\n{}"], b"{}"),
        ([answer(b"{}", b"X-Content-Length: 7", b"Note: content-length: 9")], b"{}"),
        ([answer(status=b"HTTP/1.1 200")], b"{}"),
    ],
    ids=[
        "at once",
        "byte by byte",
        "large",
        "empty",
        "blank lines",
        "capitals and spaces",
        "names that contain it",
        "no reason phrase",
    ],
)
def test_an_answer_is_read_and_its_connection_kept(pieces, expected):
    with serving(pieces, [PLAIN]) as (service, connections):
        assert connections.post(b"{}", {}) == expected
        assert connections.post(b"{}", {}) == b"{}"

    assert service.connections == 1


@pytest.mark.parametrize("header", [b"Connection: close", b"connection:Close "])
def test_a_connection_that_is_about_to_close_is_not_kept(header):
    with serving([answer(b"{}", header)], [PLAIN]) as (service, connections):
        assert connections.post(b"{}", {}) == b"{}"
        assert connections.post(b"{}", {}) == b"{}"

    assert service.connections == 2


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\n", None], UnreadableAnswer),
        ([answer(b"{}", b"Content-Length: 2")], UnreadableAnswer),
        ([answer(b"{}", b"Content-Length: two")], UnreadableAnswer),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}"], UnreadableAnswer),
        ([answer(b"2\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked")], UnreadableAnswer),
        ([answer(b"{}", b"Transfer-Encoding : chunked")], UnreadableAnswer),
        ([answer(b"{}", b"Note: folded", b" line")], UnreadableAnswer),
        ([answer(b"{}", b"Note: bare\nTransfer-Encoding: chunked")], UnreadableAnswer),
        ([answer(b"", status=b"HTTP/1.1 100 Continue") + PLAIN], UnreadableAnswer),
        ([answer(b"", status=b"HTTP/1.1 100 Continue"), PLAIN], UnreadableAnswer),
        ([answer(status=b"HTTP/1.1 503 Service Unavailable")], UnreadableAnswer),
        ([answer(status=b"HTTP/1.0 200 OK")], UnreadableAnswer),
        ([answer(status=b"SSH-2.0-OpenSSH")], UnreadableAnswer),
        ([answer(status=b"HTTP/1.1 2000 OK")], UnreadableAnswer),
        ([answer(b"{}", length=1)], UnreadableAnswer),
        ([PLAIN[:-2], b"{}" + PLAIN], UnreadableAnswer),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"], UnreadableAnswer),
        ([b"x: y\r\n" * 20_000], UnreadableAnswer),
        ([None], ConnectionError),
        ([PLAIN[:20], None], ConnectionError),
        ([PLAIN[:-1], None], ConnectionError),
    ],
    ids=[
        "no length",
        "two lengths",
        "two lengths, one of them none",
        "two lengths in one",
        "chunked",
        "space before a colon",
        "folded",
        "bare line feed",
        "interim",
        "interim, then more",
        "503",
        "HTTP/1.0",
        "other protocol",
        "no status",
        "more than it says",
        "more than it says, after its head",
        "negative length",
        "endless head",
        "closed before it",
        "closed in its head",
        "closed in its body",
    ],
)
def test_what_is_no_plain_answer_is_refused_and_its_connection_not_used_again(pieces, error):
    with serving(pieces, [PLAIN]) as (service, connections):
        with pytest.raises(error):
            connections.post(b"{}", {})
        assert connections.post(b"{}", {}) == b"{}"

    assert service.connections == 2


@pytest.mark.parametrize("rest", [answer(b"of nobody's request"), None], ids=["answer", "end"])
def test_a_connection_on_which_something_came_unasked_is_not_used_again(rest):
    with serving([PLAIN, LATER, rest], [PLAIN]) as (service, connections):
        connections.post(b"{}", {})
        service.send_the_rest()
        assert connections.post(b"{}", {}) == b"{}"

    assert service.connections == 2


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\n", "a\r"])
def test_a_header_with_a_line_break_is_not_sent(value):
    with serving([PLAIN]) as (service, connections):
        with pytest.raises(ValueError, match="line break"):
            connections.post(b"{}", {"X-Amz-Security-Token": value})
        connections.post(b"{}", {})

    assert len(service.requests) == 1

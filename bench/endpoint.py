"""A lean AWS endpoint: says yes to every call after a set delay, and counts the calls.

An emulator would measure itself: this one takes some ten microseconds a call. It runs in a process
of its own, pinned to the second core where there is one, so that it does not slow what is measured.
"""

import asyncio
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import cast

_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True)
class Endpoint:
    """A running endpoint, seen from the process that measures."""

    url: str
    _pipe: Connection

    def set_delay(self, seconds: float) -> None:
        self._pipe.send(seconds)
        self._pipe.recv()

    def take_calls(self) -> Counter[str]:
        """The calls since the last time, by operation (`PutItem`)."""
        self._pipe.send(None)
        return Counter(self._pipe.recv())


@contextmanager
def lean_endpoint() -> Iterator[Endpoint]:
    """Runs an endpoint on 127.0.0.1 for as long as the block takes."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,))
    process.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{ours.recv()}", ours)
    finally:
        process.terminate()
        process.join()


def pin_to_core(core: int) -> None:
    """Keeps this process to one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})


def _serve(pipe: Connection) -> None:
    pin_to_core(1)
    asyncio.run(_run(pipe))


async def _run(pipe: Connection) -> None:
    calls: Counter[str] = Counter()
    delay = 0.0

    def answer_owner() -> None:
        nonlocal delay
        asked = pipe.recv()
        if asked is None:
            pipe.send(dict(calls))
            calls.clear()
        else:
            delay = asked
            pipe.send("done")

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Protocol(calls, lambda: delay), "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    loop.add_reader(pipe.fileno(), answer_owner)
    await asyncio.Event().wait()


class _Protocol(asyncio.Protocol):
    """One kept-alive connection: requests in, the same short answer out."""

    def __init__(self, calls: Counter[str], delay: Callable[[], float]) -> None:
        self._calls, self._delay = calls, delay
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(_END_OF_HEAD)) >= 0:
            head, start = self._received[:end], end + len(_END_OF_HEAD)
            stop = start + int(_header(head, b"content-length") or 0)
            if len(self._received) < stop:
                return
            body, self._received = self._received[start:stop], self._received[stop:]
            operation = (_header(head, b"x-amz-target") or b"?.?").decode().split(".")[-1]
            self._calls[operation] += 1
            answer = _answer(operation, body)
            asyncio.get_running_loop().call_later(self._delay(), self._transport.write, answer)


def _answer(operation: str, body: bytes) -> bytes:
    text = b"{}"
    if operation == "BatchExecuteStatement":  # one answer for each statement
        text = b'{"Responses":[' + b",".join([b"{}"] * body.count(b'"Statement"')) + b"]}"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\n"
    return head + b"content-length: %d\r\n\r\n%b" % (len(text), text)


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return None

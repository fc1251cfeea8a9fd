"""A lean AWS endpoint: answers every call after a set delay, and counts the calls.

It says yes to all, and hands out the dead letters that it was given. An emulator would measure
itself: this one takes some ten microseconds a call, some hundred for ten messages. It runs in a
process of its own, pinned to the second core where there is one, so that it does not slow what is
measured.
"""

import asyncio
import hashlib
import itertools
import json
import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True)
class Endpoint:
    """A running endpoint, seen from the process that measures."""

    url: str
    _pipe: Connection

    def set_delay(self, seconds: float) -> None:
        self._ask("set_delay", seconds)

    def set_parameter(self, value: str) -> None:
        """What SSM's GetParameter tells, of any name."""
        self._ask("set_parameter", value)

    def put_messages(self, messages: Sequence[bytes]) -> None:
        """Fills the queue that ReceiveMessage reads: each as it stands in the answer, JSON."""
        self._ask("put_messages", messages)

    def set_row(self, values: dict[str, Any]) -> None:
        """What the table `jobs` knows under any key, besides the key."""
        self._ask("set_row", values)

    def take_calls(self) -> Counter[str]:
        """The calls since the last time, by operation (`PutItem`)."""
        return Counter(self._ask("take_calls"))

    def take_seconds(self) -> float:
        """From the first call since the last time to the last answer."""
        return float(self._ask("take_seconds"))

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._pipe.send((name, arguments))
        return self._pipe.recv()


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
    aws = _Aws()

    def answer_owner() -> None:
        name, arguments = pipe.recv()
        pipe.send(getattr(aws, name)(*arguments))

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Protocol(aws), "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    loop.add_reader(pipe.fileno(), answer_owner)
    await asyncio.Event().wait()


class _Protocol(asyncio.Protocol):
    """One kept-alive connection: requests in, short answers out."""

    def __init__(self, aws: "_Aws") -> None:
        self._aws = aws
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
            self._aws.note_call(operation)
            answer = _http(self._aws.answer(operation, body))
            asyncio.get_running_loop().call_later(self._aws.delay, self._write, answer)

    def _write(self, answer: bytes) -> None:
        self._transport.write(answer)
        self._aws.note_answer()


class _Aws:
    """What all connections share."""

    def __init__(self) -> None:
        self.delay = 0.0
        self._calls: Counter[str] = Counter()
        self._first_call: float | None = None
        self._last_answer = 0.0
        self._parameter = ""
        self._row: dict[str, Any] = {}
        self._messages: deque[bytes] = deque()
        self._message_ids = (f"00000000-0000-4000-8000-{one:012x}" for one in itertools.count())

    # --- for the owner ----------------------------------------------------------------------------

    def set_delay(self, seconds: float) -> None:
        self.delay = seconds

    def set_parameter(self, value: str) -> None:
        self._parameter = value

    def set_row(self, values: dict[str, Any]) -> None:
        self._row = values

    def put_messages(self, messages: Sequence[bytes]) -> None:
        self._messages = deque(messages)

    def take_calls(self) -> dict[str, int]:
        calls, self._calls = self._calls, Counter()
        return dict(calls)

    def take_seconds(self) -> float:
        first, self._first_call = self._first_call, None
        return 0.0 if first is None else self._last_answer - first

    # --- for the connections ----------------------------------------------------------------------

    def note_call(self, operation: str) -> None:
        self._calls[operation] += 1
        if self._first_call is None:
            self._first_call = asyncio.get_running_loop().time()

    def note_answer(self) -> None:
        self._last_answer = asyncio.get_running_loop().time()

    def answer(self, operation: str, body: bytes) -> bytes:
        """The answer's JSON. What is not in here needs to hear no more than yes."""
        match operation:
            case "BatchExecuteStatement":  # one answer for each statement
                answers = b",".join([b"{}"] * body.count(b'"Statement"'))
                return b'{"Responses":[' + answers + b"]}"
            case "BatchGetItem":
                return self._rows(json.loads(body)["RequestItems"])
            case "GetParameter":
                return json.dumps({"Parameter": {"Value": self._parameter}}).encode()
            case "GetQueueAttributes":
                return (
                    b'{"Attributes":{"ApproximateNumberOfMessages":"%d",'
                    b'"ApproximateNumberOfMessagesNotVisible":"0"}}'
                ) % len(self._messages)
            case "ReceiveMessage":
                return self._receive(json.loads(body).get("MaxNumberOfMessages", 1))
            case "SendMessageBatch":
                return _all_successful([self._sent(one) for one in json.loads(body)["Entries"]])
            case "DeleteMessageBatch" | "ChangeMessageVisibilityBatch":
                return _all_successful([{"Id": one["Id"]} for one in json.loads(body)["Entries"]])
        return b"{}"

    def _receive(self, most: int) -> bytes:
        count = min(most, len(self._messages))
        if not count:
            return b"{}"
        messages = b",".join(self._messages.popleft() for _ in range(count))
        return b'{"Messages":[' + messages + b"]}"

    def _rows(self, tables: dict[str, Any]) -> bytes:
        rows = [key | self._row for key in tables["jobs"]["Keys"]] if self._row else []
        return json.dumps({"Responses": {"jobs": rows, "idempotency": []}}).encode()

    def _sent(self, entry: dict[str, Any]) -> dict[str, str]:
        # Only AWS's SDKs of other languages check the sum.
        digest = hashlib.md5(entry["MessageBody"].encode(), usedforsecurity=False).hexdigest()
        return {
            "Id": entry["Id"],
            "MessageId": next(self._message_ids),
            "MD5OfMessageBody": digest,
        }


def _all_successful(entries: Sequence[dict[str, str]]) -> bytes:
    # As the API's reference has it; SQS leaves an empty `Failed` out, at which `replay-aws-dlq`
    # breaks with any aws-sdk since 2.1491.
    return json.dumps({"Successful": entries, "Failed": []}).encode()


def _http(text: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\n"
    return head + b"content-length: %d\r\n\r\n%b" % (len(text), text)


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return None

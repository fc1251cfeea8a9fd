"""A mail provider on 127.0.0.1 that keeps what it is given: SES v2 SendEmail, and faults on demand.

POST   /v2/email/outbound-emails  SendEmail, as botocore sends it
GET    /sent                      [{"to", "subject", "email_id", "at"}, ...] in the order of arrival
DELETE /sent                      forgets them
POST   /faults                    {"status": 503, "seconds": 10, "ratio": 1.0, "delay": 0}
GET    /faults                    the same, with the number of mails that it has hit
"""

import json
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

SEND_EMAIL = "/v2/email/outbound-emails"
LARGEST_MAIL = 40 * 1024 * 1024  # https://docs.aws.amazon.com/ses/latest/dg/quotas.html

# https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html#API_SendEmail_Errors
ERROR_OF_STATUS = {
    400: "BadRequestException",
    404: "NotFoundException",
    429: "TooManyRequestsException",
    500: "InternalServiceErrorException",
    503: "ServiceUnavailableException",
}


class Refused(Exception):
    """An answer other than 200; `error` is what botocore makes an exception class of."""

    def __init__(self, status: int, message: str, error: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = error or ERROR_OF_STATUS.get(status, "ServiceFault")


@dataclass(frozen=True)
class Faults:
    """How the sink misbehaves for `seconds`, towards the share `ratio` of the mails."""

    status: int | None = None
    """None: the mail is accepted, only late."""
    seconds: float = 10.0
    ratio: float = 1.0
    delay: float = 0.0
    """Seconds before it answers. An accepted mail counts as sent before the delay."""
    error: str | None = None
    """The SES error beside the status, `MessageRejected` say, where it is not the usual one."""

    def __post_init__(self) -> None:
        if self.status is not None and not (type(self.status) is int and 400 <= self.status < 600):
            raise ValueError("status: must be a whole number from 400 to 599, or null")
        for name, highest in (("seconds", 3600), ("ratio", 1), ("delay", 900)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= highest:
                raise ValueError(f"{name}: must be a number from 0 to {highest}")
        if self.error is not None and (self.status is None or type(self.error) is not str):
            raise ValueError("error: must be text, beside a status")


class MailSink:
    """Serves from `start` to `close`, each connection in a thread of its own."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._sent: list[dict[str, str | None]] = []
        self._faults = Faults(seconds=0)
        self._faults_end = 0.0
        self._mails_hit = 0
        self._server = _Server(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        # 0.02: how long closing takes.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def send_email(self, mail: Any) -> dict[str, str]:
        faults = self._faults_for_this_mail()
        try:
            if faults.status is not None:
                raise Refused(faults.status, "a fault that was asked for", faults.error)
            entry = _entry(mail)
            with self._lock:
                self._sent.append(entry)
        finally:
            self._closed.wait(faults.delay)
        return {"MessageId": str(uuid.uuid4())}

    def sent(self, _: Any = None) -> list[dict[str, str | None]]:
        with self._lock:
            return list(self._sent)

    def forget(self, _: Any = None) -> dict[str, str]:
        with self._lock:
            self._sent.clear()
        return {}

    def misbehave(self, fields: Any) -> dict[str, Any]:
        try:
            faults = Faults(**fields)
        except TypeError:  # no object, or a field that there is not
            allowed = ", ".join(Faults.__dataclass_fields__)
            raise Refused(400, f"an object is expected; its fields may be {allowed}") from None
        except ValueError as error:
            raise Refused(400, str(error)) from None
        with self._lock:
            self._faults, self._mails_hit = faults, 0
            self._faults_end = time.monotonic() + faults.seconds
        return self.faults()

    def faults(self, _: Any = None) -> dict[str, Any]:
        with self._lock:
            return asdict(self._faults) | {"mails": self._mails_hit}

    def _faults_for_this_mail(self) -> Faults:
        with self._lock:
            if time.monotonic() >= self._faults_end or self._rng.random() >= self._faults.ratio:
                return Faults(seconds=0)
            self._mails_hit += 1
            return self._faults

    def route(self, method: str, path: str) -> Callable[[Any], object]:
        routes: dict[tuple[str, str], Callable[[Any], object]] = {
            ("POST", SEND_EMAIL): self.send_email,
            ("GET", "/sent"): self.sent,
            ("DELETE", "/sent"): self.forget,
            ("POST", "/faults"): self.misbehave,
            ("GET", "/faults"): self.faults,
        }
        if (method, path) not in routes:
            there_are = ", ".join(" ".join(known) for known in routes)
            raise Refused(404, f"there is no {method} {path}; there are {there_are}")
        return routes[method, path]


def _entry(mail: Any) -> dict[str, str | None]:
    try:
        addresses = [str(address) for address in mail["Destination"]["ToAddresses"]]
        simple = mail["Content"]["Simple"]
        subject = simple["Subject"]["Data"]
        headers = {header["Name"].lower(): header["Value"] for header in simple.get("Headers", [])}
    except (KeyError, TypeError, AttributeError) as error:
        raise Refused(400, f"not a SendEmail request with simple content: {error!r}") from None
    illegal = [address for address in addresses if not _is_deliverable(address)]
    if illegal or not addresses:
        raise Refused(400, f"Illegal address: {', '.join(illegal) or 'none given'}")
    return {
        "to": ", ".join(addresses),
        "subject": subject,
        "email_id": headers.get("x-email-id"),
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def _is_deliverable(address: str) -> bool:
    return "@" in address and not address.rstrip(">").lower().endswith(".invalid")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # the usual 5 refuse connections when a few batches start at once

    def __init__(self, sink: MailSink) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sink = sink


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60  # after which an idle connection's thread ends
    wbufsize = -1  # head and body in one packet; apart they wait 40 ms for each other (Nagle)

    def _answer(self) -> None:
        try:
            body = self._body()
            answer = self.server.sink.route(self.command, self.path)(body)
            self._write(200, answer)
        except Refused as refused:
            self._write(refused.status, {"message": str(refused)}, refused.error)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names that http.server looks for

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LARGEST_MAIL:
            self.close_connection = True
            raise Refused(400, f"Content-Length: must be 0 to {LARGEST_MAIL}")
        try:
            return json.loads(self.rfile.read(int(length)) or "{}")
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from None

    def _write(self, status: int, answer: object, error: str | None = None) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if error:
            self.send_header("x-amzn-ErrorType", error)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: `GET /sent` is the record."""

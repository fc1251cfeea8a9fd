"""E-mails through an embedded AWS: published, failed, retried, dead-lettered, replayed, counted.

This module does and checks; `demo_view` shows. The mail provider fails in the middle, twenty mails
are published twice, and five can never be delivered: those call nobody. Then the provider refuses
forty for good, by a mistake of its own: that pages somebody, with the events to paste. When it is
mended the forty are replayed, and the five are not.
"""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from local.alarm_state import ALARM, OK
from local.aws import Aws
from local.cloudwatch import Watched
from local.pager import NobodyCalled, Pager
from redrive.message import ENVELOPE, Cause, Envelope, iso_time
from redrive.publisher import Publisher

DELIVERABLE = 175
DUPLICATES = 20
IMPOSSIBLE = 5
REPLAYED = 40
OUTAGE_SECONDS = 4
GIVE_UP_SECONDS = 90.0
POLL_SECONDS = 0.2
TO_REPLAY = range(500, 500 + REPLAYED)
GROWTH = "SendEmailAlarmsDeadLetterGrowth"


@dataclass(frozen=True)
class Progress:
    phase: str
    seconds: float
    waiting: int
    in_flight: int
    dead: int
    sent: int
    expected: int
    """How many e-mails there are so far."""

    @property
    def ended(self) -> int:
        return self.sent + self.dead

    @property
    def over(self) -> bool:
        return not self.waiting and not self.in_flight and self.ended >= self.expected


@dataclass(frozen=True)
class DeadLetter:
    payload: dict[str, Any]
    envelope: Envelope | None

    @property
    def cause(self) -> Cause | None:
        return self.envelope.cause if self.envelope else None

    @property
    def explains_itself(self) -> bool:
        return self.cause is not None and self.payload["to"] in self.cause.message


@dataclass(frozen=True)
class Evidence:
    """What is found at the end."""

    sent: list[str]
    """The `email_id` of each mail that the provider took."""
    refused: int
    """Calls in the provider's outage."""
    dead_letters: list[DeadLetter]
    left: int
    """Messages in the queue."""
    replayed: int
    """What the replay said that it sent."""
    calls_before: list[str]
    """Alarms that paged somebody before the forty died."""
    calls: list[str]
    """Alarms that paged somebody since."""
    alarm: str
    """The growth alarm's state at the end."""


@dataclass(frozen=True)
class Finding:
    held: bool
    text: str


def findings(evidence: Evidence) -> list[Finding]:
    """What must hold at the end, whatever happened in between."""
    times_sent = Counter(evidence.sent)
    delivered = sum(times_sent[_mail(number)["email_id"]] > 0 for number in range(DELIVERABLE))
    revived = sum(times_sent[_mail(number)["email_id"]] > 0 for number in TO_REPLAY)
    twice = sum(count > 1 for count in times_sent.values())
    dead, left = len(evidence.dead_letters), evidence.left
    explained = sum(letter.explains_itself for letter in evidence.dead_letters)
    return [
        Finding(delivered == DELIVERABLE, f"{delivered} of {DELIVERABLE} e-mails were sent"),
        Finding(not twice, f"{twice} were sent twice; {DUPLICATES} were published twice"),
        Finding(
            evidence.refused > 0,
            f"{evidence.refused} calls were refused in the mail provider's outage, and retried",
        ),
        Finding(
            dead == explained == IMPOSSIBLE,
            f"{dead} dead letters, {explained} of them say why; {IMPOSSIBLE} were impossible",
        ),
        Finding(
            revived == evidence.replayed == REPLAYED,
            f"{evidence.replayed} dead letters were replayed, and {revived} of them sent",
        ),
        Finding(
            not evidence.calls_before,
            f"{len(evidence.calls_before)} times somebody was paged for {IMPOSSIBLE} dead letters",
        ),
        Finding(
            len(evidence.calls) == 1 and evidence.alarm == OK,
            f"{len(evidence.calls)} time somebody was paged for {REPLAYED} more; "
            f"the alarm is {evidence.alarm}",
        ),
        Finding(not left, f"{left} messages are left in the queue"),
    ]


@dataclass(frozen=True)
class Page:
    """An alarm, as it reaches whoever is on call."""

    alarm: str
    state: str
    text: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it says to paste."""
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]


@dataclass(frozen=True)
class Operation:
    """One event, pasted into one of the operator's functions."""

    function: str
    event: dict[str, Any]
    answer: dict[str, Any]


class Demo:
    def __init__(
        self, aws: Aws, outputs: dict[str, str], *, watched: Watched, pager: Pager
    ) -> None:
        self._watched, self._pager = watched, pager
        self._calls_before: list[str] = []
        self._calls: list[str] = []
        self._sqs = aws.client("sqs")
        self._queue = outputs["SendEmailQueueUrl"]
        self._dead_letters = outputs["SendEmailDeadLetterQueueUrl"]
        self._mail_sink = aws.mail_sink_url
        self._lambda = aws.client("lambda")
        self._functions = {name: outputs[f"{name}FunctionName"] for name in ("Inspect", "Replay")}
        self._expected = DELIVERABLE + IMPOSSIBLE
        self._refused = self._replayed = 0
        self._publisher = Publisher("local", sqs=self._sqs, ssm=aws.client("ssm"))
        self._started = time.monotonic()

    def run(self) -> Iterator[Progress]:
        """Publishes half, lets the provider fail, publishes the rest, and waits for the end."""
        mails = [_mail(number) for number in range(DELIVERABLE)]
        impossible = [
            _mail(number, to="nobody@nowhere.invalid") for number in range(900, 900 + IMPOSSIBLE)
        ]
        half = DELIVERABLE // 2
        self._publisher.publish_many("send_email", impossible + mails[:half])
        yield from self._watch("working", until_sent=half // 2)
        self._ask("POST", "/faults", {"status": 503, "seconds": OUTAGE_SECONDS})
        self._publisher.publish_many("send_email", mails[half:] + mails[:DUPLICATES])
        yield from self._watch("the mail provider fails", for_seconds=OUTAGE_SECONDS)
        yield from self._watch("recovering")
        self._refused = self._ask("GET", "/faults")["mails"]
        self._calls_before = self._more_calls()

    def die(self) -> Iterator[Progress]:
        """The provider refuses forty mails for good, by a mistake that is mended afterwards."""
        self._broken_at = iso_time(time.time() * 1000)
        self._ask("POST", "/faults", {"status": 400, "seconds": GIVE_UP_SECONDS})
        self._expected += REPLAYED
        mails = (_mail(number) for number in TO_REPLAY)
        self._publisher.publish_many("send_email", mails)
        yield from self._watch("the provider refuses all")
        self._ask("POST", "/faults", {"status": 400, "seconds": 0})

    def await_page(self) -> Page:
        """What SNS tells whoever is on call."""
        self._watched.wait_for(GROWTH, ALARM, seconds=GIVE_UP_SECONDS)
        told = self._pager.next(seconds=GIVE_UP_SECONDS)
        self._calls.append(told["AlarmName"])
        return Page(told["AlarmName"], told["NewStateValue"], told["AlarmDescription"])

    def ask_operator(self, page: Page) -> Iterator[Operation]:
        """The page's own events, pasted into the functions' test events, and what they answer."""
        look, try_out, replay = page.events
        # The five that can never be delivered are to stay.
        since = {"failed": {"from": self._broken_at}}
        yield self._operate("Inspect", look)
        yield self._operate("Replay", try_out | since)
        operation = self._operate("Replay", replay | since)
        self._replayed = operation.answer["replayed"]
        yield operation

    def recover(self) -> Iterator[Progress]:
        """What was replayed is sent, and the alarm ends."""
        yield from self._watch("replayed")
        self._watched.wait_for(GROWTH, OK, seconds=GIVE_UP_SECONDS)
        self._calls += self._more_calls()

    def _more_calls(self) -> list[str]:
        calls = []
        with suppress(NobodyCalled):
            while told := self._pager.next(seconds=1):
                calls.append(told["AlarmName"])
        return calls

    def _operate(self, function: str, event: dict[str, Any]) -> Operation:
        answer = self._lambda.invoke(
            FunctionName=self._functions[function], Payload=json.dumps(event).encode()
        )
        return Operation(function, event, json.load(answer["Payload"]))

    def evidence(self) -> "Evidence":
        now = self._progress("")
        return Evidence(
            sent=[mail["email_id"] for mail in self._ask("GET", "/sent")],
            refused=self._refused,
            dead_letters=self._read_dead_letters(),
            left=now.waiting + now.in_flight,
            replayed=self._replayed,
            calls_before=self._calls_before,
            calls=self._calls,
            alarm=self._watched.state(GROWTH),
        )

    def _read_dead_letters(self) -> list[DeadLetter]:
        letters: dict[str, DeadLetter] = {}
        while batch := self._sqs.receive_message(
            QueueUrl=self._dead_letters, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            for message in batch:
                attribute = message.get("MessageAttributes", {}).get(ENVELOPE, {})
                envelope = Envelope.parse(attribute.get("StringValue", ""))
                letters[message["MessageId"]] = DeadLetter(json.loads(message["Body"]), envelope)
        return list(letters.values())

    def _watch(
        self, phase: str, *, until_sent: int | None = None, for_seconds: float = GIVE_UP_SECONDS
    ) -> Iterator[Progress]:
        deadline = time.monotonic() + for_seconds
        while time.monotonic() < deadline:
            progress = self._progress(phase)
            yield progress
            if progress.over or (until_sent is not None and progress.sent >= until_sent):
                return
            time.sleep(POLL_SECONDS)

    def _progress(self, phase: str) -> Progress:
        waiting, in_flight = self._depth(self._queue)
        return Progress(
            phase=phase,
            seconds=time.monotonic() - self._started,
            waiting=waiting,
            in_flight=in_flight,
            dead=sum(self._depth(self._dead_letters)),
            sent=len(self._ask("GET", "/sent")),
            expected=self._expected,
        )

    def _depth(self, queue: str) -> tuple[int, int]:
        answer = self._sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])
        counts = {
            name.removeprefix("ApproximateNumberOfMessages"): int(value)
            for name, value in answer["Attributes"].items()
            if name.startswith("ApproximateNumberOfMessages")
        }
        return counts[""] + counts.get("Delayed", 0), counts["NotVisible"]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own mail sink
            self._mail_sink + path, json.dumps(body).encode() if body else None, method=method
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=10) as answer:
            return json.load(answer)


def _mail(number: int, to: str = "") -> dict[str, Any]:
    return {
        "email_id": f"receipt:ord_{number}",
        "to": to or f"customer{number}@example.com",
        "template": "receipt",
        "data": {"order": f"ord_{number}", "total": "9.90 EUR"},
    }

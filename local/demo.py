"""E-mails through an embedded AWS: published, failed, retried, dead-lettered, replayed, counted.

This module does and checks; `demo_view` shows. The mail provider fails in the middle, twenty mails
are published twice, and five can never be delivered. Then the provider refuses forty for good, by
a mistake of its own: when that is mended, they are replayed, and the five are not.
"""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from local.aws import Aws
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
        Finding(not left, f"{left} messages are left in the queue"),
    ]


@dataclass(frozen=True)
class Operation:
    """One event, pasted into one of the operator's functions."""

    function: str
    event: dict[str, Any]
    answer: dict[str, Any]


class Demo:
    def __init__(self, aws: Aws, outputs: dict[str, str]) -> None:
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

    def die(self) -> Iterator[Progress]:
        """The provider refuses forty mails for good, by a mistake that is mended afterwards."""
        self._broken_at = iso_time(time.time() * 1000)
        self._ask("POST", "/faults", {"status": 400, "seconds": GIVE_UP_SECONDS})
        self._expected += REPLAYED
        mails = (_mail(number) for number in TO_REPLAY)
        self._publisher.publish_many("send_email", mails)
        yield from self._watch("the provider refuses all")
        self._ask("POST", "/faults", {"status": 400, "seconds": 0})

    def ask_operator(self) -> Iterator[Operation]:
        """What an operator pastes into the functions' test events, and what they answer."""
        yield self._operate("Inspect", {"job": "send_email"})
        since = {"job": "send_email", "failed": {"from": self._broken_at}}
        event = {**since, "action": "replay", "canary": 5, "reason": "the provider's mistake"}
        yield self._operate("Replay", event | {"dry_run": True})
        replay = self._operate("Replay", event)
        self._replayed = replay.answer["replayed"]
        yield replay

    def recover(self) -> Iterator[Progress]:
        """What was replayed is sent."""
        yield from self._watch("replayed")

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

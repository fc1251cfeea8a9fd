"""Publishes jobs: refuses what no worker could run before any call, and loses no payload.

Needs boto3 alone; never imports `redrive.worker`.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from random import Random
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import boto3

from redrive import aws_errors, clients
from redrive.bulk import BulkSend
from redrive.compose import AttributeValue, Composed, compose
from redrive.discovery import Destination, discover
from redrive.errors import PublishFailed, SettingsError, Unsent

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

T = TypeVar("T")

PerPayload: TypeAlias = T | Callable[[Any], T]
"""One value for all messages, or a function that finds it in the payload."""

# More threads than this, sharing one publisher, gain nothing on one core.
_THREADS: Final = 16


class Publisher:
    """Publishes the jobs of one stage; threads may share it.

        publisher = Publisher()
        publisher.publish("send_email", {"email_id": "receipt:ord_1", "to": "ada@example.com"})

    `stage` is the environment's REDRIVE_STAGE unless given. Nothing is read or connected before the
    first job. What the stack says of a job is read once, from the SSM parameter
    `/redrive/<stage>/<job>`: the caller needs `ssm:GetParameter` on it and `sqs:SendMessage` on the
    queue, both of which the job's publish policy grants. The other arguments are for tests.
    """

    def __init__(
        self,
        stage: str | None = None,
        *,
        sqs: "SQSClient | None" = None,
        ssm: "SSMClient | None" = None,
        sleep: Callable[[float], None] = time.sleep,
        random: Random | None = None,
    ) -> None:
        self._stage, self._sqs, self._ssm = stage, sqs, ssm
        self._sleep, self._random = sleep, random or Random()
        self._destinations: dict[str, Destination] = {}
        self._lock = RLock()

    def publish(
        self,
        job: str,
        payload: Mapping[str, Any],
        *,
        attributes: Mapping[str, AttributeValue] | None = None,
        group_id: str | None = None,
        deduplication_id: str | None = None,
        expires_in: timedelta | None = None,
    ) -> str:
        """Publishes one job; returns its id, `<job>:<key>`, once SQS has confirmed the message.

        On a FIFO queue `group_id` is required, and the jobs of one group run in order; on a
        standard queue it names the tenant, for SQS's fair queues. `deduplication_id`, on FIFO
        queues only, makes SQS drop what is published under it again within five minutes; without
        one every message counts. A job that was not started within `expires_in` is dead-lettered
        as `Expired` instead of run.

        Raises UnknownJob, SettingsError, or InvalidMessage and its kinds, before any call to SQS;
        and PublishFailed, from boto3's error, where SQS did not confirm. To publish again is then
        right even if the message had arrived: it is the same job.
        """
        destination, sqs = self._destination(job), self._sqs_client()
        message = compose(
            destination,
            payload,
            attributes=attributes,
            group_id=group_id,
            deduplication_id=deduplication_id,
            expires_in=expires_in,
        )
        try:
            sqs.send_message(QueueUrl=destination.queue_url, **message.fields)
        except Exception as error:
            self._forget(destination, error)
            unsent = Unsent(0, payload, aws_errors.code(error), aws_errors.reason(error))
            raise PublishFailed(0, [unsent]) from error
        return message.job_id

    def publish_many(
        self,
        job: str,
        payloads: Iterable[Any],
        *,
        attributes: PerPayload[Mapping[str, AttributeValue] | None] = None,
        group_id: PerPayload[str | None] = None,
        deduplication_id: Callable[[Any], str | None] | None = None,
        expires_in: PerPayload[timedelta | None] = None,
    ) -> int:
        """Publishes every payload, ten to a call, in order; returns how many SQS confirmed.

        Sends while it reads, so that a generator of millions takes no memory: at most ten wait. A
        payload that cannot be published never hinders another, and what SQS refuses for a trouble
        of its own is sent again. (On a FIFO queue it then comes after the nine that went with it.)

        Raises PublishFailed at the end, with all that is left over; or at once, with the rest of
        the input untouched in `remaining`, for a failure that would meet every message: no
        permission, no queue, no network. Where `payloads` itself raises, what was read before is
        sent, and its error is raised, or is the cause of PublishFailed if anything is left over.
        """
        destination, sqs = self._destination(job), self._sqs_client()

        def compose_one(payload: Any) -> Composed:
            return compose(
                destination,
                payload,
                attributes=attributes(payload) if callable(attributes) else attributes,
                group_id=group_id(payload) if callable(group_id) else group_id,
                deduplication_id=deduplication_id(payload) if deduplication_id else None,
                expires_in=expires_in(payload) if callable(expires_in) else expires_in,
            )

        bulk = BulkSend(sqs, destination, compose_one, sleep=self._sleep, random=self._random)
        try:
            return bulk.send_all(payloads)
        except PublishFailed as failed:
            self._forget(destination, failed.__cause__)
            raise

    def _destination(self, job: str) -> Destination:
        with self._lock:
            if job not in self._destinations:
                self._destinations[job] = self._discover(job)
            return self._destinations[job]

    def _forget(self, destination: Destination, error: BaseException | None) -> None:
        # A service outlives deployments, and a replaced queue has another name.
        if error is not None and aws_errors.names(error) & {
            "QueueDoesNotExist",
            "NonExistentQueue",
        }:
            self._destinations.pop(destination.job, None)

    def _discover(self, job: str) -> Destination:
        stage = self._stage or os.environ.get("REDRIVE_STAGE")
        if not stage:
            raise SettingsError("no stage: use Publisher(stage) or set the variable REDRIVE_STAGE")
        return discover(self._ssm_client(), stage, job)

    def _sqs_client(self) -> "SQSClient":
        with self._lock:
            if self._sqs is None:
                self._sqs = boto3.client("sqs", config=clients.config(threads=_THREADS))
            return self._sqs

    def _ssm_client(self) -> "SSMClient":
        with self._lock:
            if self._ssm is None:
                self._ssm = boto3.client("ssm", config=clients.config())
            return self._ssm

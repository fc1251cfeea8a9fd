"""Why a job failed, in a form that groups: what an operator counts, filters and replays by."""

import hashlib
import time
from pathlib import Path
from traceback import FrameSummary, extract_tb

from redrive import aws_errors, limits
from redrive.errors import Killed
from redrive.message import Cause, Message, cut, iso_time
from redrive.worker.job import LambdaContext

_LIBRARY = Path(__file__).parents[1]
_FUNCTION = _LIBRARY.parent  # what was deployed: the library and the job's folder


def cause_of(
    error: BaseException, *, message: Message, attempts: int, context: LambdaContext
) -> Cause:
    """The cause that a dead letter carries, or the last failed attempt had."""
    # A killed job's trace is in the log of the run that it killed, not of the one that found it
    # out.
    at = error if isinstance(error, Killed) else None
    return Cause(
        type=aws_errors.code(error),
        message=cut(_message(error), limits.CAUSE_MESSAGE_BYTES),
        fingerprint=fingerprint(error),
        attempts=attempts,
        receives=message.receives,
        failed_at=iso_time(time.time() * 1000),
        function=context.function_name,
        request_id=at.request_id if at else context.aws_request_id,
        log_stream=at.log_stream if at else context.log_stream_name,
    )


def fingerprint(error: BaseException) -> str:
    """Eight hex digits, equal for errors of one type that were raised by one statement.

    The statement's text stands for its place, since a line's number changes with every edit above
    it. The error's message is left out: it often holds the job's data.
    """
    frame = raised_at(error)
    place = (Path(frame.filename).name, frame.name, frame.line) if frame else ()
    return hashlib.sha256(repr((aws_errors.code(error), place)).encode()).hexdigest()[:8]


def raised_at(error: BaseException) -> FrameSummary | None:
    """The innermost frame of the job's own code, or of whatever raised where there is none."""
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_job_code(frame.filename)]
    return next(reversed(own or list(frames)), None)


def place(error: BaseException) -> str | None:
    """Where it was raised, for a log line: `mail.py:31 send`. Never the message: it may hold
    data.
    """
    frame = raised_at(error)
    return f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" if frame else None


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # an error whose text fails must still reach the dead-letter queue
        return ""


def _is_job_code(filename: str) -> bool:
    path = Path(filename)
    return path.is_relative_to(_FUNCTION) and not path.is_relative_to(_LIBRARY)

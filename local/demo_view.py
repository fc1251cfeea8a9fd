"""How the demo looks: a live table on a terminal, plain lines elsewhere."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from local.cloudwatch import cloudwatch
from local.demo import (
    DELIVERABLE,
    DUPLICATES,
    IMPOSSIBLE,
    OUTAGE_SECONDS,
    REPLAYED,
    DeadLetter,
    Demo,
    Finding,
    Operation,
    Page,
    Progress,
    findings,
)
from local.deploy import deployed_aws
from local.pager import pager
from local.server import lock, turn

LINE_SECONDS = 1.0
MINUTE_SECONDS = 2.0  # CloudWatch's minutes pass so fast
PLAN = (
    f"This publishes {DELIVERABLE + DUPLICATES + IMPOSSIBLE} e-mails: {DELIVERABLE} different ones,"
    f" {DUPLICATES} of them twice, and {IMPOSSIBLE} that nobody can deliver; in the middle the mail"
    f" service fails for {OUTAGE_SECONDS} s. Then it refuses {REPLAYED} more by its own mistake,"
    " which pages somebody, who replays these."
)


# The table and its bar fit a terminal of 80 columns, and do not jump as the numbers grow.
_CELL, _WIDTH = 7, 80


def show_progress(console: Console, steps: Iterable[Progress]) -> None:
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for progress in steps:
                live.update(_table(progress), refresh=True)
        return
    next_line = 0.0
    for progress in steps:
        if progress.seconds >= next_line or progress.over:
            console.print(_line(progress))
            next_line = progress.seconds + LINE_SECONDS


def show_causes(console: Console, letters: Iterable[DeadLetter]) -> None:
    table = Table("dead letter", "cause", "attempts", "message", title="Why they died")
    for letter in letters:
        cause = letter.cause
        told = (cause.type, str(cause.attempts), cause.message) if cause else ("none",)
        table.add_row(str(letter.payload["email_id"]), *told)
    console.print(table)


def show_page(console: Console, page: Page) -> None:
    text = Text(f"{page.state} {page.alarm}\n\n", style="bold") + Text(page.text)
    console.print(Panel(text, title="SNS, to whoever is on call", border_style="red"))


def show_operations(console: Console, operations: Iterable[Operation]) -> None:
    for operation in operations:
        event = json.dumps(operation.event)
        console.print(f"\n[bold]{operation.function}[/] {event}", highlight=False, soft_wrap=True)
        answer = operation.answer
        if "errorMessage" in answer:
            console.print(f"[red]{answer['errorMessage']}[/]", highlight=False)
            continue
        counts = " ".join(f"{name} {answer[name]}," for name in ("scanned", "matched", "replayed"))
        done = "complete" if answer["complete"] else answer["incomplete"]
        console.print(f"  {counts} {done}", highlight=False)
        for cause in answer["causes"]:
            console.print(
                f"  {cause['count']:5} x {cause['cause']} ({cause['fingerprint']}), "
                f"{cause['first']} to {cause['last']}",
                highlight=False,
                soft_wrap=True,
            )
    console.print()


def show_findings(console: Console, found: list[Finding]) -> bool:
    for finding in found:
        mark = "[green]✓[/]" if finding.held else "[bold red]✗[/]"
        console.print(mark, finding.text, highlight=False)
    return all(finding.held for finding in found)


def _table(progress: Progress) -> Group:
    table = Table()
    for heading in ("waiting", "in flight", "dead", "sent", "elapsed"):
        table.add_column(heading, justify="right", min_width=_CELL)
    table.add_column("now", min_width=24, no_wrap=True)
    table.add_row(
        str(progress.waiting),
        str(progress.in_flight),
        f"[red]{progress.dead}[/]" if progress.dead else "0",
        f"[green]{progress.sent}[/]",
        f"{progress.seconds:.1f} s",
        _now(progress),
    )
    return Group(table, ProgressBar(progress.expected, progress.ended, width=_WIDTH))


def _line(progress: Progress) -> str:
    return (
        f"{progress.seconds:5.1f} s  waiting {progress.waiting:3}  in flight "
        f"{progress.in_flight:3}  dead {progress.dead:2}  sent {progress.sent:3}  {_now(progress)}"
    )


def _now(progress: Progress) -> str:
    if progress.over:
        return "done"
    return progress.phase if progress.ended else "the functions start"


def run_demo(parent: Path) -> bool:
    """Whether all held. The logs of a run in which it did not stay until the next one."""
    console = Console()
    console.print(PLAN, highlight=False)
    with fresh_state(parent) as state:
        return _run_demo(console, state)


def _run_demo(console: Console, state: Path) -> bool:
    console.print("Starting an embedded AWS and deploying the stack with the CDK ...")
    try:
        with (
            deployed_aws(state) as (aws, outputs),
            cloudwatch(aws, minute_seconds=MINUTE_SECONDS) as watched,
            pager(aws, outputs["PageTopicArn"]) as called,
        ):
            demo = Demo(aws, outputs, watched=watched, pager=called)
            show_progress(console, demo.run())
            show_progress(console, demo.die())
            page = demo.await_page()
            show_page(console, page)
            show_operations(console, demo.ask_operator(page))
            show_progress(console, demo.recover())
            evidence = demo.evidence()
        show_causes(console, evidence.dead_letters)
        held = show_findings(console, findings(evidence))
    except KeyboardInterrupt:
        shutil.rmtree(state)
        raise
    if held:
        console.print("All of it held. To play with the same stack: make up", highlight=False)
        shutil.rmtree(state)
    else:
        console.print(f"What the functions logged is in {aws.log}", soft_wrap=True)
    return held


@contextmanager
def fresh_state(parent: Path) -> Iterator[Path]:
    """A folder for one demo, in the place of those whose demo has ended."""
    with turn(parent, "demo.lock"):
        for earlier in parent.glob("demo-*"):
            if held := lock(earlier, "demo.lock"):
                shutil.rmtree(earlier, ignore_errors=True)
                held.close()
        state = Path(tempfile.mkdtemp(prefix="demo-", dir=parent))
        ours = lock(state, "demo.lock")
    with ours or nullcontext():
        yield state

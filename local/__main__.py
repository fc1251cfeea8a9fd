"""`python -m local up|down|watch|demo`."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import typer

from local.aws import Aws, embedded_aws, stop
from local.cloudwatch import Watched, synthesised
from local.deploy import bootstrap, deploy, synthesis
from local.server import ROOT, LocalError, running, turn

STATE = ROOT / ".local"

commands = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)


@contextmanager
def _told_plainly() -> Iterator[None]:
    try:
        yield
    except LocalError as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from None


@commands.command()
def up() -> None:
    """Start the embedded AWS, deploy the stack and leave it running; again: deploy again."""
    with _told_plainly(), turn(STATE, "up.lock"), synthesis(STATE) as synthesised:
        already = running(STATE) is not None
        # Set free only at the end: whoever ends this process before that leaves nothing behind.
        started = nullcontext(Aws.at(STATE)) if already else embedded_aws(STATE, set_free=True)
        with started as aws:
            bootstrap(aws)
            outputs = deploy(aws, synthesised())
    _say_what_next(aws, outputs)


@commands.command()
def down() -> None:
    """Stop what `up` has started."""
    with _told_plainly():
        typer.echo("Stopped." if stop(STATE) else "Nothing was running.")


@commands.command()
def watch(minute_seconds: float = 60.0) -> None:
    """Judge the alarms of what `up` left running, once a minute, until Ctrl-C; say what changes."""
    with _told_plainly():
        aws = Aws.at(STATE)
        watched = Watched(aws, synthesised(aws), minute_seconds=minute_seconds)
        typer.echo(f"{len(watched.alarms)} alarms are watched.")
        while True:
            for change in watched.minute():
                typer.echo(f"{change.state:<17} {change.alarm}")
            time.sleep(minute_seconds)


@commands.command()
def demo() -> None:
    """Watch 200 e-mails go through an embedded AWS of its own, and what held at the end."""
    # The library, as if a service had installed it.
    sys.path.insert(0, str(ROOT / "functions"))
    from local.demo_view import run_demo

    with _told_plainly():
        held = run_demo(STATE)
    raise typer.Exit(0 if held else 1)


def _say_what_next(aws: Aws, outputs: dict[str, str]) -> None:
    width = max(map(len, outputs), default=0)
    for name, value in sorted(outputs.items()):
        typer.echo(f"  {name:<{width}}  {value}")
    typer.echo(f"""
Redrive runs at {aws.endpoint}, its mails go to {aws.mail_sink_url}.

  . .local/env                      this shell's aws, boto3 and cdk talk to it
  curl $MAIL_SINK_URL/sent          the mails that were sent
  tail -f .local/{aws.log.name}      what the functions log
  make down                         stops it""")


if __name__ == "__main__":
    commands(prog_name="python -m local")

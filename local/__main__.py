"""`python -m local up|down|demo`."""

import sys

import typer

from local.aws import Aws, start_detached, stop
from local.deploy import DeployFailed, bootstrap, deploy, synthesis
from local.server import ROOT, StartFailed, running

STATE = ROOT / ".local"

commands = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)


@commands.command()
def up() -> None:
    """Start the embedded AWS, deploy the stack and leave it running; again: deploy again."""
    already = running(STATE) is not None
    try:
        with synthesis(STATE) as synthesised:
            aws = Aws.at(STATE) if already else start_detached(STATE)
            bootstrap(aws)
            outputs = deploy(aws, synthesised())
    except BaseException as error:
        if not already:
            stop(STATE)
        if isinstance(error, StartFailed | DeployFailed):
            _fail(error)
        raise
    _say_what_next(aws, outputs)


@commands.command()
def down() -> None:
    """Stop what `up` has started."""
    typer.echo("Stopped." if stop(STATE) else "Nothing was running.")


@commands.command()
def demo() -> None:
    """Watch 200 e-mails go through an embedded AWS of its own, and what held at the end."""
    # The library, as if a service had installed it.
    sys.path.insert(0, str(ROOT / "functions"))
    from local.demo_view import run_demo

    try:
        held = run_demo(STATE)
    except (StartFailed, DeployFailed) as error:
        _fail(error)
    raise typer.Exit(0 if held else 1)


def _fail(error: Exception) -> None:
    typer.secho(str(error), fg="red", err=True)
    raise typer.Exit(1)


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

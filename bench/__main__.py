"""`make bench`: prints every figure of the README."""

import os
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table

from bench import batch, cold_start, gil, replay
from bench.endpoint import lean_endpoint, pin_to_core
from bench.half_core import half_core

_NOT_INSTALLED = "not installed: see the Makefile"


def main() -> None:
    console = Console()
    # The endpoint says yes to anyone.
    os.environ.update(
        AWS_DEFAULT_REGION="eu-west-1",
        AWS_ACCESS_KEY_ID="bench",
        AWS_SECRET_ACCESS_KEY="bench",  # noqa: S106
    )
    os.environ["POWERTOOLS_LOG_LEVEL"] = "WARNING"
    pin_to_core(0)
    # First: the peak memory of a new process is at least what its parent has at that time.
    console.print(_cold_start(cold_start.measure("send_email.handler")))
    with lean_endpoint() as endpoint:
        os.environ["AWS_ENDPOINT_URL"] = endpoint.url
        results = {f"batch of {size}": batch.measure(endpoint, size) for size in (10, 100)}
        with half_core() as held:
            if held:
                results["of 10, half a core"] = batch.measure(endpoint, 10)
        console.print(_batches(results))
        console.print(_replay(replay.measure(endpoint)))
    console.print(_gil([gil.measure(fraction) for fraction in gil.FRACTIONS]))


def _batches(results: Mapping[str, batch.BatchResult]) -> Table:
    table = Table(
        title="A batch of idempotent jobs, 5 ms per DynamoDB call, "
        f"medians of {batch.ROUNDS}, one core for the worker"
    )
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    rows: dict[str, Callable[[batch.BatchResult], str]] = {
        "Powertools BatchProcessor + @idempotent_function, ms": lambda r: f"{r.peer:.1f}",
        "Redrive worker, ms": lambda r: f"{r.ours:.1f}",
        "Redrive worker without group commit, ms": lambda r: f"{r.plain:.1f}",
        "floor: two calls one after the other, ms": lambda r: f"{r.floor:.1f}",
        "faster than Powertools": lambda r: f"{r.speedup:.1f} x",
        "of the floor": lambda r: f"{r.over_floor:.2f} x",
        "DynamoDB calls a job": lambda r: _calls(
            r, "PutItem", "UpdateItem", "GetItem", "BatchExecuteStatement"
        ),
        "SQS calls a job, by the worker": lambda r: _calls(r, "ChangeMessageVisibilityBatch"),
        "worker CPU a job, ms": lambda r: f"{r.cpu:.2f}",
    }
    for name, value in rows.items():
        table.add_row(name, *(value(result) for result in results.values()))
    return table


def _calls(result: batch.BatchResult, *operations: str) -> str:
    return f"{sum(result.calls.get(name, 0) for name in operations):.2f}"


def _replay(result: replay.ReplayResult) -> Table:
    table = Table(
        title=f"Dead letters sent again, {replay.DELAY_SECONDS * 1000:.0f} ms a call, "
        f"medians of {replay.ROUNDS} ({replay.PEER_ROUNDS} of replay-aws-dlq), one core"
    )
    table.add_column("")
    table.add_column("", justify="right")
    beyond = sum(result.calls.values()) - result.calls["ReceiveMessage"]
    rows = {
        "replay-aws-dlq, messages/s": f"{result.peer:.0f}" if result.peer else _NOT_INSTALLED,
        "sequential loop, ten to a call, messages/s": f"{result.loop:.0f}",
        "Redrive's replay, messages/s": f"{result.ours:.0f}",
        "its calls by boto3, as many threads, nothing around, messages/s": f"{result.by_boto3:.0f}",
        "faster than replay-aws-dlq": f"{result.ours / result.peer:.0f} x" if result.peer else "",
        "faster than the loop": f"{result.ours / result.loop:.1f} x",
        "faster than its calls by boto3": f"{result.ours / result.by_boto3:.2f} x",
        "calls a message: receives": f"{result.calls['ReceiveMessage']:.2f}",
        "calls a message: all others": f"{beyond:.2f}",
        "CPU a message, ms": f"{result.cpu:.2f}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _cold_start(result: cold_start.ColdStart) -> Table:
    table = Table(title=f"send_email's handler, medians of {cold_start.ROUNDS}")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_row("import beyond boto3 and two clients, ms", f"{result.import_milliseconds:.0f}")
    table.add_row("peak memory after import, MiB", f"{result.peak_mebibytes:.0f}")
    return table


def _gil(results: list[gil.Held]) -> Table:
    table = Table(title="C calls that hold the GIL, one after another, for a part of a lease")
    for column in ("one call, leases", "longest without a renewal, leases", "lease"):
        table.add_column(column, justify="right")
    for result in results:
        kept = "lost" if result.lost else "kept"
        table.add_row(f"{result.fraction:.2f}", f"{result.longest_leases:.2f}", kept)
    return table


if __name__ == "__main__":
    main()

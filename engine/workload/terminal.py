"""How a replay looks in a terminal: a progress bar while it runs, a table when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from engine.workload import replay
from engine.workload.report import Latency, LoadReport


@contextmanager
def progress_bar(num_requests: int) -> Iterator[replay.Progress]:
    """Shows a bar of ended requests on stderr; yields the callback that moves it."""
    bar = Progress(
        TextColumn("replaying"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[sent]} sent, {task.fields[failed]} failed"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    with bar:
        task = bar.add_task("replaying", total=num_requests, sent=0, failed=0)

        def moved(sent: int, answered: int, failed: int) -> None:
            bar.update(task, completed=answered + failed, sent=sent, failed=failed)

        yield moved


def print_report(report: LoadReport) -> None:
    """Prints the summary on stdout."""
    console = Console()
    console.print(
        f"{report.num_answered:,} of {report.num_requests:,} requests answered to their end "
        f"in {report.duration_seconds:.1f} s: {report.num_prompt_tokens:,} prompt and "
        f"{report.num_output_tokens:,} output tokens, "
        f"{report.requests_per_second:.1f} requests/s, "
        f"{report.output_tokens_per_second:,.0f} output tokens/s",
        highlight=False,
    )
    console.print(_latency_table(report))
    if report.lateness is not None and report.lateness.p99 > LATE_SECONDS:
        console.print(
            f"requests were sent up to {report.lateness.max:.2f} s late (p99 "
            f"{report.lateness.p99:.2f} s): this machine did not keep the trace's pace"
        )
    if report.num_refused:
        console.print(
            f"{report.num_refused:,} of them were told to come again (HTTP 503 or 429) and were "
            "not sent again",
            highlight=False,
        )
    _print_failures(console, report)


def _print_failures(console: Console, report: LoadReport) -> None:
    for reason, count in report.failures[:MAX_FAILURES]:
        console.print(Text(f"{count:,} failed: {reason}", style="red"))
    others = report.failures[MAX_FAILURES:]
    if others:
        num_requests = sum(count for _, count in others)
        console.print(Text(f"{num_requests:,} failed for {len(others):,} other reasons", "red"))


MAX_FAILURES = 10
"""Reasons that are printed, the most frequent first; `--json` has them all."""

LATE_SECONDS = 0.1
"""Lateness beyond which the load generator itself is the bottleneck, and says so."""


def _latency_table(report: LoadReport) -> Table:
    table = Table("", "p50", "p95", "p99", "max", "samples", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, latency in (
        ("TTFT", report.ttft),
        ("ITL", report.itl),
        ("TPOT", report.tpot),
        ("e2e", report.e2e),
    ):
        table.add_row(name, *_cells(latency))
    return table


def _cells(latency: Latency | None) -> tuple[str, ...]:
    if latency is None:
        return ("not measured",) * 4 + ("0",)
    seconds = (latency.p50, latency.p95, latency.p99, latency.max)
    return (*(f"{value * 1000:,.1f} ms" for value in seconds), f"{latency.num_samples:,}")

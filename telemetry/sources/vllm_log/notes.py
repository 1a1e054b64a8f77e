"""What an import of a log says that it cannot say: sentences for whoever reads the result."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from telemetry.sources.vllm_log.importer import LogImporter
from telemetry.sources.vllm_log.moments import NS, LogClock
from telemetry.sources.vllm_log.reading import LogFile

NO_PREEMPTIONS = (
    "preemptions: the log printed none, which is no sign that there were none. The line of every "
    "ten seconds never has them, since vLLM sets its count to 0 before it looks at it; "
    "vllm:num_preemptions_total has them (stepscope import prometheus)"
)
PREEMPTIONS_PRINTED = (
    "preemptions: the log printed {num:,} numbers of them. V0 writes every fiftieth only, and "
    "lines of later versions count since the line before: vllm:num_preemptions_total has all"
)
ITERATIONS = (
    "iteration lines call the recomputation of what a preemption threw away generation: "
    "log:iteration_generation_tokens is no count of new tokens"
)


def notes_of(
    file: LogFile, clock: LogClock, zone: str, importer: LogImporter, *, has_name: bool
) -> Iterator[str]:
    """Yields what was assumed, and what the log cannot know."""
    if file.damage is not None:
        yield f"{file.name} {file.damage}: what comes before is imported, the rest is not there"
    if not has_name:
        yield (
            "standard input has no name of its own: its engines are those of every import without "
            "--name"
        )
    yield from _about_times(file, clock, zone)
    if not importer.engines.saw_start:
        yield "the log does not hold the engine's start: its settings are not known from it"
    if importer.engines.num_without_rank:
        yield (
            f"{importer.engines.num_without_rank:,} events are of processes that name no rank: "
            f"they stand under engine {importer.engines.ranks[0]}"
        )
    if not (importer.samples.has_stats or importer.samples.has_iterations):
        yield "no line of numbers: it ran for less than ten seconds, idle, or without log stats"
    if importer.samples.num_preemptions_printed:
        yield PREEMPTIONS_PRINTED.format(num=importer.samples.num_preemptions_printed)
    else:
        yield NO_PREEMPTIONS
    if importer.samples.has_iterations:
        yield ITERATIONS


def _about_times(file: LogFile, clock: LogClock, zone: str) -> Iterator[str]:
    if clock.is_inferred:
        written = datetime.fromtimestamp(file.modified_ns / NS, UTC)
        yield (
            f"its lines name no year: the newest are taken as of {clock.year}, since the file was "
            f"last written on {written:%Y-%m-%d}. --year sets the year of the first line"
        )
    if clock.is_beyond_file:
        yield (
            "lines are later than the file itself: the log spans more than a year, or its times "
            "are of another zone. --year and --tz set them"
        )
    if clock.used_zone:
        yield f"its times name no zone: they are taken as of {zone}. --tz sets it"
    if clock.has_whole_seconds:
        yield (
            "its times are whole seconds: lines of the same second are put microseconds apart, in "
            "their order"
        )

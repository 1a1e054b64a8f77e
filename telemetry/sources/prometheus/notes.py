"""What an import of metrics says that it left out, and what no scrape knows."""

from __future__ import annotations

from collections.abc import Iterable

from telemetry.sources.prometheus.page import PageReader
from telemetry.sources.telling import ImportTold

MOST_NAMED = 4
KNOWS_NOT = (
    "a scrape knows no single request, no cause of a preemption and nothing between two scrapes: "
    "docs/sources.md says what else"
)


def add_notes(told: ImportTold, reader: PageReader) -> None:
    """Adds what the reader left out, and what a scrape cannot say."""
    if reader.num_unread:
        examples = reader.take_unread()
        like = f", like {examples[0]!r}" if examples else ""
        told.notes.append(f"lines that are no samples: {reader.num_unread:,}{like}")
    if left_out := names_text(reader.left_out):
        told.notes.append(f"left out as not the engine's own: {left_out}")
    told.notes.append(KNOWS_NOT)


def names_text(metrics: Iterable[str]) -> str:
    """Returns a few of the names of metrics, and how many others there are."""
    families = sorted({_family(metric) for metric in metrics})
    named = ", ".join(families[:MOST_NAMED])
    num_others = len(families) - MOST_NAMED
    return f"{named} and {num_others:,} others" if num_others > 0 else named


def _family(metric: str) -> str:
    """Returns the family that a sample's name belongs to, so that a histogram is named once."""
    for suffix in ("_bucket", "_count", "_sum", "_created"):
        if metric.endswith(suffix):
            return metric.removesuffix(suffix)
    return metric

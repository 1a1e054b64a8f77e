"""Makes docs/cookbook.md: the questions of the day after, each with its query and an answer.

    python -m telemetry.sql.cookbook LOG > docs/cookbook.md

A question, its query and the meaning of its columns stand at the head of one saved query each
(`queries/*.sql`); the answers are those of the log that is named. A test says when the page is
stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from telemetry.query.parameters import values_for
from telemetry.query.saved import library_queries
from telemetry.query.window import Window, choose_window
from telemetry.records import SCHEMA_VERSION
from telemetry.rendering import table_text
from telemetry.sql.documentation import SavedQuery
from telemetry.sql.packed_log import opened
from telemetry.store import Log

COMMAND = (
    f"python -m telemetry.sql.cookbook tests/data/step_logs/v{SCHEMA_VERSION}.tar.xz "
    "> docs/cookbook.md"
)

CHAPTERS: dict[str, tuple[str, ...]] = {
    "What happened at all": ("engine-starts", "record-gaps", "arrivals-by-minute"),
    "How it was for users": (
        *("latency-percentiles", "slowest-first-tokens", "longest-pauses"),
        *("unhappy-ends", "unfinished", "request-story"),
    ),
    "Preemptions": ("preemptions-by-minute", "most-evicted", "who-evicted-others", "lost-tokens"),
    "The queue": ("why-nobody-admitted", "admission-gaps", "waits-by-reason", "adapter-waits"),
    "The engine": ("kv-holders", "token-work", "slowest-steps", "prefix-hits", "loads-by-tier"),
    "The prefix cache, by KV events": ("kv-blocks-by-minute", "kv-blocks-stored-again"),
    "What was changed": ("settings-changes",),
    "Engines that are only scraped": ("scraped-load", "scraped-latencies"),
}
"""Every saved query of the library, in the order in which a post-mortem asks."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "preemptions-by-minute": ("--since", "1h"),
    "why-nobody-admitted": ("--since", "12:02:30", "--until", "12:03:00"),
    "request-story": ("--param", "request_id=req-16"),
}
"""What is asked for beside the name."""

INTRODUCTION = f"""\
# Cookbook for the day after

Questions that come up once an incident is over, each with the one query that answers it. All are
saved queries:

    stepscope query NAME --log DIR
    stepscope query NAME --since 14:02 --until 14:05
    stepscope query NAME --param engine=HEX --format csv

Without `--since` a query looks at the whole of a closed log, and at the last 15 minutes of a live
one. Times are UTC. To change one, save its SQL as a file of the same name in
`~/.config/stepscope/queries`; `docs/step-log.md` describes every table and view.

The answers are those of one recorded incident: engine `a1` serves 32 requests from a pool of KV
blocks that is too small for them, and dies; engine `a2` takes over, with more blocks and fewer
slots.
Made by
`{COMMAND}`.
"""


def page(log: Log) -> str:
    """Returns the page, with the answers of a log."""
    queries = library_queries()
    return "\n".join([INTRODUCTION, *_index(queries), *_chapters(log, queries)])


def _index(queries: dict[str, SavedQuery]) -> Iterator[str]:
    for title, names in CHAPTERS.items():
        yield f"**{title}**\n"
        yield "\n".join(f"* [{queries[name].question}](#{name})" for name in names) + "\n"


def _chapters(log: Log, queries: dict[str, SavedQuery]) -> Iterator[str]:
    for title, names in CHAPTERS.items():
        yield f"## {title}\n"
        for name in names:
            yield _recipe(log, queries[name])


def _recipe(log: Log, query: SavedQuery) -> str:
    words = EXAMPLES.get(query.name, ())
    columns = "\n".join(
        f"* `{column.name}`{_measure(column.unit, column.polarity)}: {column.doc}"
        for column in query.columns
    )
    parameters = "\n".join(
        _parameter(each.name, each.default, each.doc) for each in query.parameters
    )
    return "\n".join(
        part
        for part in (
            f"### {query.name}\n",
            f"**{query.question}**\n",
            f"{query.doc}\n",
            f"    {' '.join(('stepscope query', query.name, *words))}\n",
            f"```\n{table_text(ask(log, query, words))}\n```\n",
            f"{columns}\n",
            f"{parameters}\n" if parameters else "",
            f"<details><summary>SQL</summary>\n\n```sql\n{query.sql}\n```\n\n</details>\n",
        )
        if part
    )


def ask(log: Log, query: SavedQuery, words: tuple[str, ...] = ()) -> pa.Table:
    """Returns the answer to a saved query, asked with the command line's words."""
    flags = dict(zip(words[::2], words[1::2], strict=True))
    window: Window = choose_window(log, flags.get("--since"), flags.get("--until"))
    given = dict([flags["--param"].split("=", 1)]) if "--param" in flags else {}
    return log.query(query.sql, values_for(query, given, window))


def _measure(unit: str, polarity: str) -> str:
    said = [word for word in (unit, f"{polarity} is better") if not word.startswith("-")]
    return f" ({', '.join(said)})" if said else ""


def _parameter(name: str, default: str | None, doc: str) -> str:
    choice = "has to be given" if default is None else f"{default} unless you say otherwise"
    return f"* `--param {name}=`: {doc} ({choice})"


def main() -> None:
    """Prints the page, with the answers of the log that the command names."""
    with opened(Path(sys.argv[1])) as log:
        print(page(log), end="")


if __name__ == "__main__":
    main()

"""Makes docs/step-log.md: every table, view and macro, with examples and what they give.

    python -m telemetry.sql.page LOG > docs/step-log.md

The words are those of `table_docs`, `records`, `macros` and of the heads of the views' files; the
examples run on the log that is named. A test says when the page is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from telemetry.records import SCHEMA_VERSION, Column
from telemetry.rendering import table_text
from telemetry.sql.documentation import View
from telemetry.sql.library import VIEWS
from telemetry.sql.macros import MACRO_DOCS
from telemetry.sql.measures import polarity_of, unit_of
from telemetry.sql.packed_log import opened
from telemetry.sql.table_docs import TABLE_DOCS
from telemetry.tables import DENSE_TABLES, SQL_TYPES, TABLES

COMMAND = (
    f"python -m telemetry.sql.page tests/data/step_logs/v{SCHEMA_VERSION}.tar.xz > docs/step-log.md"
)

INTRODUCTION = f"""\
# The step log

Every table, view and macro that a query can use. `docs/record.md` explains the words in them
(reasons, causes, events); `docs/cookbook.md` answers twenty questions with them.

    stepscope query "FROM preemptions LIMIT 10"
    stepscope query --list

* `ts` and every column that ends in `_ts` or `_ns` are nanoseconds; moments count from the Unix
  epoch, on the engine's own clock. Filter by `ts`: that is what makes a query on a long log quick.
  `ts_utc` is the same for reading.
* `engine` is one start of an engine, 64 random bits. Tables for people show 16 hex digits; in SQL
  it is a number. `request` and `step` count from the start of their engine: join on
  `(engine, request)` and `(engine, step)`.
* *NULL* says when a column has no value; `not known` is also *not in use*. It never means 0.
* *better* says which way is good: `lower`, `higher`, or `–` where neither is.
* There is no prompt, no output text and no token id anywhere.

The examples ran on a recorded incident. Made by
`{COMMAND}`.
"""


_HEADS = ("column", "type", "unit", "better", "NULL", "meaning")
_NULL = re.compile(r"[;,] NULL:? ([^;]+)$")


class QueryLog(Protocol):
    """What the examples are asked of."""

    def query(self, sql: str) -> pa.Table: ...


def page(log: QueryLog) -> str:
    """Returns the page."""
    return "\n".join([INTRODUCTION, *_index(), "", *_views(log), *_macros(log), *_tables(log)])


def _index() -> Iterator[str]:
    for title, names in (("Views", VIEWS), ("Macros", MACRO_DOCS), ("Tables", TABLE_DOCS)):
        links = ", ".join(f"[`{name}`](#{name})" for name in names)
        yield f"**{title}**: {links}\n"


def _views(log: QueryLog) -> Iterator[str]:
    yield "## Views\n\nWhat to ask first: intervals are defined here and nowhere else.\n"
    for view in VIEWS.values():
        yield f"### {view.name}\n\n{view.doc}\n"
        yield _table(_HEADS, _view_rows(log, view))
        yield _example(log, view.example)


def _view_rows(log: QueryLog, view: View) -> Iterator[tuple[str, ...]]:
    described = log.query(f"DESCRIBE {view.name}").to_pylist()
    types = {row["column_name"]: row["column_type"] for row in described}
    for column in view.columns:
        meaning, null = _split(column.doc)
        yield (
            f"`{column.name}`",
            types[column.name],
            _shown(column.unit),
            _shown(column.polarity),
            null or "–",
            meaning,
        )


def _macros(log: QueryLog) -> Iterator[str]:
    yield "## Macros\n\nFunctions of the library. One that gives rows stands in `FROM`.\n"
    for macro in MACRO_DOCS.values():
        unit = "" if macro.unit == "-" else f" Unit: {macro.unit}."
        yield f"### {macro.name}\n\n`{macro.signature}`\n\n{macro.doc}{unit}\n"
        yield _example(log, macro.example)


def _tables(log: QueryLog) -> Iterator[str]:
    yield "## Tables\n\nThe rows as they were recorded. Reasons and kinds are codes here.\n"
    columns = {**TABLES, "step_requests": DENSE_TABLES["step_requests"]}
    for name, table in TABLE_DOCS.items():
        yield f"### {name}\n\n{table.doc}\n"
        if name in columns:
            yield _table(_HEADS, map(_column_row, columns[name]))
        yield _example(log, table.example)


def _column_row(column: Column) -> tuple[str, ...]:
    meaning, null = _split(column.doc)
    return (
        f"`{column.name}`",
        SQL_TYPES[column.dtype],
        _shown(unit_of(column)),
        _shown(polarity_of(column)),
        null or ("not known" if column.nullable else "never"),
        meaning,
    )


def _split(doc: str) -> tuple[str, str]:
    """Returns what a column is, and what its NULL means where that is said."""
    match = _NULL.search(doc)
    return (doc, "") if match is None else (doc[: match.start()], match[1])


def _shown(word: str) -> str:
    return "–" if word == "-" else word


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in r] for r in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _example(log: QueryLog, sql: str) -> str:
    return f"```sql\n{sql}\n```\n\n```\n{table_text(log.query(sql))}\n```\n"


def main() -> None:
    """Prints the page, its examples run on the log that the command names."""
    with opened(Path(sys.argv[1])) as log:
        print(page(log), end="")


if __name__ == "__main__":
    main()

"""Puts the views over the base tables of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from telemetry.sources.prometheus.names import HISTOGRAMS, NAMES
from telemetry.sql.documentation import View, read_view
from telemetry.sql.macros import MACRO_DOCS
from telemetry.sql.schema import BASE_TABLES, empty_select
from telemetry.tables import VOCABULARY_COLUMNS
from telemetry.vocabulary import VOCABULARIES

if TYPE_CHECKING:
    import duckdb

_ORDER = (
    "log_ends",
    "requests",
    "preemptions",
    "request_intervals",
    "admission_stops",
    "wait_reasons",
    "queue_by_reason",
    "kv_pressure",
    "token_work",
    "connector_loads",
    "request_spans",
    "step_spans",
    "spans",
    "request_traces",
    "metric_intervals",
    "metric_buckets",
    "metric_latencies",
    "finding_changes",
    "finding_silences",
    "finding_states",
)

VIEWS: dict[str, View] = {name: read_view(name) for name in _ORDER}
"""Every view by name, in an order in which they can be created."""

MACROS: tuple[str, ...] = tuple(MACRO_DOCS)
"""The macros that come with the views, for whoever allows SQL functions by name."""


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the macros and views in the connection's current schema, over its base tables.

    A base table that the connection does not have (a log without dense rows, an older log) is stood
    in for by an empty view of the same name. Names of codes are those that the log's own
    `vocabulary` gives, so a log written by a newer version reads right.
    """
    present = {row[0] for row in connection.execute("SHOW TABLES").fetchall()}
    for name, columns in BASE_TABLES.items():
        if name not in present:
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS {empty_select(columns)}")
    if "vocabulary" not in present:
        connection.execute(_vocabulary_stand_in())
    for statement in _macros(connection):
        connection.execute(statement)
    for view in VIEWS.values():
        connection.execute(view.sql)


def _vocabulary_stand_in() -> str:
    values = ", ".join(
        f"('{enum}', {int(member)}, '{member.name}')"
        for enum, members in VOCABULARIES.items()
        for member in members
    )
    names = ", ".join(column.split()[0] for column in VOCABULARY_COLUMNS.split(", "))
    return f"CREATE OR REPLACE VIEW vocabulary AS SELECT * FROM (VALUES {values}) v({names})"


def _macros(connection: duckdb.DuckDBPyConnection) -> list[str]:
    stored = connection.execute("SELECT DISTINCT enum, code, name FROM vocabulary").fetchall()
    names = {enum: {int(m): m.name for m in members} for enum, members in VOCABULARIES.items()}
    for enum, code, name in stored:
        if enum in names:
            names[enum].setdefault(int(code), str(name))
    statements = [
        "CREATE OR REPLACE MACRO utc(ts) AS make_timestamp(ts // 1000)",
        "CREATE OR REPLACE MACRO present(attributes) AS json_merge_patch('{}', attributes)",
        _metric_names(),
        _histogram_names(),
    ]
    for enum, codes in names.items():
        statements.append(_name_macro(enum, codes))
        statements.append(_code_macro(enum, codes))
    return statements


def _name_macro(enum: str, codes: dict[int, str]) -> str:
    listed = ", ".join(_quoted(codes.get(code)) for code in range(1, max(codes) + 1))
    return f"CREATE OR REPLACE MACRO {enum}_name(code) AS ([{listed}])[code]"


def _code_macro(enum: str, codes: dict[int, str]) -> str:
    cases = " ".join(f"WHEN {_quoted(name)} THEN {code}" for code, name in sorted(codes.items()))
    return (
        f"CREATE OR REPLACE MACRO {enum}(name) AS "
        f"(CASE name {cases} ELSE error('{enum} has no ' || name) END)::UTINYINT"
    )


def _metric_names() -> str:
    rows = ", ".join(
        f"({_quoted(metric)}, {_quoted(column)}, {_quoted(kind)}, {rank}, "
        + ", ".join(_quoted(word) for word in (label or (None, None)))
        + ")"
        for metric, column, kind, rank, label in NAMES
    )
    return (
        f"CREATE OR REPLACE MACRO metric_names() AS TABLE SELECT * FROM (VALUES {rows}) "
        "n(metric, canonical, kind, rank, label, label_value)"
    )


def _histogram_names() -> str:
    rows = ", ".join(
        f"({_quoted(f'{name}_bucket')}, {_quoted(histogram)}, {rank})"
        for histogram, names in HISTOGRAMS.items()
        for rank, name in enumerate(names)
    )
    return (
        f"CREATE OR REPLACE MACRO histogram_names() AS TABLE SELECT * FROM (VALUES {rows}) "
        "n(metric, canonical, rank)"
    )


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"

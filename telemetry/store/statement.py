"""What a statement asks for, looked at before it runs: one SELECT that reads the log, and no more.

DuckDB's own parser turns the statement into a tree; what the tree may hold is listed here. Whatever
is not listed is refused, but for scalar functions: of these the few are refused that have an
effect, wait, or look outside the log. Behind this stand the locked-down instance and the read-only
transaction (`telemetry.store.guard`); nothing depends on one of the three alone.

How large values may become is `telemetry.store.growth`'s business.
"""

from __future__ import annotations

import json
import re
from typing import Any

import duckdb

from telemetry.errors import QueryFailed, QueryRefused
from telemetry.rendering import printable_lines
from telemetry.sql import MACROS
from telemetry.store.growth import check_growth
from telemetry.store.tree import Node, function_name, nodes

MAX_STATEMENT_CHARS = 64 << 10

TABLE_FUNCTIONS = frozenset(
    {
        *MACROS,
        *("range", "generate_series", "unnest", "json_each", "json_tree"),
        *("duckdb_columns", "duckdb_tables", "duckdb_views", "duckdb_functions", "duckdb_types"),
        *("duckdb_schemas", "duckdb_keywords", "pragma_table_info"),
    }
)
"""Table functions that a query may use: those that make rows of nothing, or describe tables."""

REFUSED_FUNCTIONS = frozenset(
    {
        *("getenv", "getvariable", "nextval", "currval", "setval", "setseed"),
        *("write_log", "sleep_ms", "json_serialize_plan", "json_deserialize_sql"),
    }
)
"""Scalar functions that have an effect, wait, or look outside the log."""

_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TOO_DEEP = "the statement is nested too deeply: write it with CTEs"
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?:\(\s*FORMAT\s+\w+\s*\)\s*)?", re.IGNORECASE)


def checked_statement(connection: Any, sql: str) -> Any:
    """Returns the one statement in `sql`, as DuckDB parsed it.

    Raises:
        QueryRefused: It is not exactly one statement that only reads the log.
        QueryFailed: DuckDB cannot parse it.
    """
    if len(sql) > MAX_STATEMENT_CHARS:
        raise QueryRefused(
            f"the statement has {len(sql):,} characters and {MAX_STATEMENT_CHARS:,} is the most: "
            "give long lists as parameters"
        )
    if "\0" in sql or not _is_text(sql):
        raise QueryRefused("the statement holds a zero byte or half a character: write plain text")
    statement = _only_statement(connection, sql)
    match _kind(statement):
        case "SELECT":
            _check_tree(_tree(connection, sql))
        case "EXPLAIN":
            _check_explained(connection, sql)
        case kind:
            raise QueryRefused(f"{kind} is refused: a step log is read with SELECT (or EXPLAIN)")
    return statement


def _is_text(sql: str) -> bool:
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    return True


def _only_statement(connection: Any, sql: str) -> Any:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryFailed(printable_lines(str(error))) from error
    if len(statements) != 1:
        raise QueryRefused(
            f"{len(statements)} statements were given: a query is exactly one "
            "(a PIVOT counts as one where it lists its values with IN)"
        )
    return statements[0]


def _kind(statement: Any) -> str:
    try:
        return str(statement.type.name)
    except ValueError:  # a kind that DuckDB's Python does not know itself
        return "this kind of statement"


def _check_explained(connection: Any, sql: str) -> None:
    """Looks at what is explained: EXPLAIN ANALYZE runs it."""
    match = _EXPLAIN.match(sql)
    explained = sql[match.end() :] if match is not None else ""
    if match is None or _kind(_only_statement(connection, explained)) != "SELECT":
        raise QueryRefused(
            "this EXPLAIN is refused: write EXPLAIN or EXPLAIN ANALYZE and then a SELECT, with no "
            "comment before it"
        )
    _check_tree(_tree(connection, explained))


def _tree(connection: Any, sql: str) -> Node:
    """Returns the statement as a tree of objects.

    It is a literal and no parameter: for the first parameter of a process DuckDB imports pandas,
    0.2 s. A literal knows no escape but the doubled quote.
    """
    literal = "'" + sql.replace("'", "''") + "'"
    try:
        asked = f"SELECT json_serialize_sql({literal}, skip_null := true)"
        ((text,),) = connection.execute(asked).fetchall()
        tree: Node = json.loads(text)
    except duckdb.Error as error:
        raise QueryFailed(printable_lines(str(error))) from error
    except RecursionError:
        raise QueryRefused(_TOO_DEEP) from None
    if tree.get("error"):
        raise QueryRefused(f"the statement cannot be checked: {tree.get('error_message')}")
    return tree


def _check_tree(tree: Node) -> None:
    """Looks at every part of a statement."""
    for node in nodes(tree):
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _QUERY_NODES:
            what = kind.removesuffix("_NODE").removesuffix("_QUERY")
            raise QueryRefused(f"{what} inside a statement is refused: a step log is only read")
        if kind == "TABLE_FUNCTION":
            _check_table_function(function_name(node["function"]))
        elif function_name(node) in REFUSED_FUNCTIONS:
            raise QueryRefused(
                f"the function {function_name(node)} is refused: a query only reads the log"
            )
    try:
        check_growth(tree)
    except RecursionError:
        raise QueryRefused(_TOO_DEEP) from None


def _check_table_function(name: str) -> None:
    if name not in TABLE_FUNCTIONS:
        raise QueryRefused(
            f"the table function {name} is refused: a query reads the tables and views of the log "
            "(`stepscope query --list` names them)"
        )

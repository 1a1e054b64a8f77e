"""Reads the tests that stand in a file."""

from __future__ import annotations

from typing import Any, cast, get_args

from diagnose.user_rules.definition import Expected, Trial
from diagnose.user_rules.document import Fields, shown
from diagnose.user_rules.texts import MAX_TEMPLATE_CHARS, read_line
from telemetry.sql import VIEWS
from telemetry.sql.schema import BASE_TABLES

MAX_TRIALS = 50
MAX_NAME_CHARS = 120


def read_trials(file: Fields) -> tuple[Trial, ...]:
    """Returns the tests: one that finds something at least, and one that does not."""
    trials = tuple(_read_trial(each) for each in file.mappings("tests"))
    if len(trials) > MAX_TRIALS:
        file.fail(
            "tests", f"are {len(trials):,} and {MAX_TRIALS} is the most: keep the telling ones"
        )
    if not any(trial.expect == "finding" for trial in trials):
        file.fail("tests", "none expects a finding: add a case in which the rule fires")
    if all(trial.expect == "finding" for trial in trials):
        file.fail("tests", "all expect a finding: add a case in which the rule is silent")
    return trials


def _read_trial(fields: Fields) -> Trial:
    name = read_line(fields, "name", MAX_NAME_CHARS)
    if ("rows" in fields) == ("log" in fields):
        fields.fail("name", f"{shown(name)} has to have either rows or log: give one of them")
    tables = fields.maybe_mapping("log")
    trial = Trial(
        name=name,
        line=fields.line,
        rows=tuple(fields.rows("rows")) if "rows" in fields else None,
        tables=() if tables is None else tuple(_read_table(tables, each) for each in tables.names),
        expect=cast("Expected", fields.choice("expect", get_args(Expected))),
        says=fields.maybe_text("says", most=MAX_TEMPLATE_CHARS),
    )
    fields.done()
    return trial


def _read_table(tables: Fields, name: str) -> tuple[str, str | tuple[dict[str, Any], ...]]:
    if name not in BASE_TABLES:
        tables.fail(name, f"is no table of a log: {', '.join(BASE_TABLES)}")
    if tables.is_text(name):
        return name, tables.text(name)
    rows = tuple(tables.rows(name))
    known = columns_of(name)
    for row in rows:
        for column in row:
            if column not in known:
                tables.fail(name, f"has no column {shown(column)}: docs/step-log.md lists them")
    return name, rows


def columns_of(table: str) -> tuple[str, ...]:
    """Returns the columns of a table or view; none where there is no such."""
    if table in VIEWS:
        return tuple(column.name for column in VIEWS[table].columns)
    return tuple(column.name for column in BASE_TABLES.get(table, ()))

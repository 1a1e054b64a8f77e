"""Runs the tests that stand in the files of rules, on a log in memory and behind the same guard."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from diagnose.diagnosis import read_context
from diagnose.finding import Finding, Healthy, NotMeasured, RuleVerdict, Suppressed
from diagnose.rule import Context
from diagnose.user_rules.deciding import judge, judge_rows, statement_of
from diagnose.user_rules.definition import Trial, UserRule
from diagnose.user_rules.template import names_in
from diagnose.window import Window, choose_window, engines_in
from telemetry.errors import StepscopeError
from telemetry.sql import create_views
from telemetry.sql.schema import BASE_TABLES
from telemetry.store.guard import Limits, lock_down, run_query
from telemetry.tables import SQL_TYPES

LIMITS = Limits(timeout_seconds=10.0, max_rows=1_000)
ROW_LIMITS = Limits(timeout_seconds=10.0, max_rows=200_000)
STATEMENT = "its statement runs and gives the columns that are named"
ENGINE = 1
"""The engine of rows that name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one test ended; `problem` is `None` where it passed."""

    rule: UserRule
    name: str
    line: int
    problem: str | None


class TrialLog:
    """A log in memory that answers as `telemetry.store.Log` does, with the same checks."""

    def __init__(self, spill: Path) -> None:
        self._connection = duckdb.connect(":memory:")
        for name, columns in BASE_TABLES.items():
            fields = ", ".join(f'"{each.name}" {SQL_TYPES[each.dtype]}' for each in columns)
            self._connection.execute(f"CREATE TABLE {name} ({fields})")
        create_views(self._connection)
        lock_down(self._connection, spill)

    def query(self, sql: str, params: Any = None) -> pa.Table:
        """Returns the rows of one reading statement."""
        return run_query(self._connection, sql, params, LIMITS).table

    def clear(self) -> None:
        """Takes all rows out."""
        for name in BASE_TABLES:
            self._connection.execute(f"DELETE FROM {name}")

    def add(self, table: str, rows: str | Sequence[dict[str, Any]]) -> None:
        """Puts rows into a table: those given, or those that a reading statement makes."""
        if isinstance(rows, str):
            made = run_query(self._connection, rows, None, ROW_LIMITS).table
        else:
            names = dict.fromkeys(name for row in rows for name in row)
            made = pa.table({name: [row.get(name) for row in rows] for name in names})
        if "engine" not in made.column_names:
            made = made.append_column("engine", pa.array([ENGINE] * made.num_rows, pa.uint64()))
        self._connection.register("made", made)
        try:
            self._connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM made")
        finally:
            self._connection.unregister("made")

    def close(self) -> None:
        """Lets go of it."""
        self._connection.close()


@contextlib.contextmanager
def trial_log() -> Iterator[TrialLog]:
    """Opens an empty log in memory."""
    with tempfile.TemporaryDirectory(prefix="stepscope-rules-") as spill:
        log = TrialLog(Path(spill))
        try:
            yield log
        finally:
            log.close()


def try_rules(rules: Sequence[UserRule]) -> list[Result]:
    """Returns how each test of each rule ended, and whether its statement runs at all."""
    results = []
    with trial_log() as log:
        for rule in rules:
            problem = _attempt(log, partial(_statement_problem, log, rule))
            results.append(Result(rule=rule, name=STATEMENT, line=rule.sql_line, problem=problem))
            for trial in rule.trials:
                problem = _attempt(log, partial(_trial_problem, log, rule, trial))
                results.append(Result(rule=rule, name=trial.name, line=trial.line, problem=problem))
    return results


def _attempt(log: TrialLog, find_problem: Callable[[], str | None]) -> str | None:
    log.clear()
    try:
        return find_problem()
    except (StepscopeError, duckdb.Error, pa.ArrowException, OverflowError) as error:
        return f"cannot be run: {str(error).partition(chr(10))[0]}"


def _statement_problem(log: TrialLog, rule: UserRule) -> str | None:
    """Returns what is wrong with the statement's answer on an empty log."""
    sql = statement_of(rule, _context(log))
    columns = log.query(f"FROM (\n{sql}\n) LIMIT 2").column_names
    if lacking := [column for column in rule.columns if column not in columns]:
        return f"gives no column {', '.join(lacking)}: it gives {', '.join(columns)}"
    known = {*columns, *(each.name for each in rule.thresholds)}
    unknown = {name for text in rule.templates for name, _ in names_in(text)} - known
    return f"{', '.join(sorted(unknown))}: no such column or threshold" if unknown else None


def _trial_problem(log: TrialLog, rule: UserRule, trial: Trial) -> str | None:
    """Returns how a test's verdict differs from what it expects."""
    for table, rows in trial.tables:
        log.add(table, rows)
    context = _context(log)
    if trial.rows is not None:
        verdict = judge_rows(rule, context, list(trial.rows))
    else:
        verdict = judge(rule, context)
    kind, said = _told(verdict)
    if kind != trial.expect:
        return f"expected {trial.expect}, got {kind}: {said}"
    if trial.says is not None and trial.says not in said:
        return f"does not say {trial.says!r}: {said}"
    return None


def _context(log: TrialLog) -> Context:
    """Returns the context of the log's first engine, in all of its time."""
    window = choose_window(log)
    engines = engines_in(log, window)
    if not engines:
        return read_context(log, Window(start_ts=0, end_ts=1), ENGINE)
    return read_context(log, window, engines[0])


def _told(verdict: RuleVerdict) -> tuple[str, str]:
    match verdict:
        case Finding():
            return "finding", verdict.sentence
        case Healthy():
            return "healthy", verdict.number
        case NotMeasured():
            return "not_measured", verdict.why
        case Suppressed():
            return "suppressed", verdict.by

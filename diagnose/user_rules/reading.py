"""Makes a rule of a file, or says what is wrong with it and on which line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast, get_args

import duckdb

from diagnose.finding import Applies, CauseKind, Level, Severity
from diagnose.rule import PAGE_SECTIONS
from diagnose.rules import RULES
from diagnose.user_rules.definition import (
    COMPARISONS,
    PLACEHOLDERS,
    ActionTemplate,
    Condition,
    Enough,
    Judges,
    Threshold,
    UserRule,
)
from diagnose.user_rules.document import Fields, read_document, shown
from diagnose.user_rules.template import fill_statement, names_in
from diagnose.user_rules.texts import read_line, read_lines
from diagnose.user_rules.trial_reading import columns_of, read_trials
from telemetry.errors import StepscopeError
from telemetry.store.statement import checked_statement

MAX_ID_CHARS = 64
MAX_TITLE_CHARS = 120
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_UNDERLINE = re.compile(r"^-{3,}\s*$", re.MULTILINE)
_RESERVED = ("not-enough-data", "undetermined", "no-scheduler-fault")


def read_rule(path: Path) -> UserRule:
    """Returns the rule in a file.

    Raises:
        UserRuleError: it is none; the message says where, what, and how to mend it.
    """
    file = read_document(path)
    own_id = _read_id(file)
    thresholds = _read_thresholds(file)
    finding, healthy = file.mapping("finding"), file.mapping("healthy")
    cause = file.mapping("cause")
    conditions = _read_conditions(finding, thresholds)
    impact, trust = file.maybe_mapping("impact"), file.maybe_mapping("confidence")
    rule = UserRule(
        path=path,
        id=own_id,
        version=file.integer("version", least=1),
        title=read_line(file, "title", MAX_TITLE_CHARS),
        severity=Severity[file.choice("severity", tuple(Severity.__members__))],
        sections=_read_sections(file),
        thresholds=tuple(thresholds.values()),
        judges=cast("Judges", file.choice("judges", get_args(Judges), "steps")),
        needs=_read_needs(file),
        sql=file.text("sql").rstrip("; \n"),
        sql_line=file.line_of("sql"),
        enough=_read_enough(file, thresholds),
        conditions=conditions,
        sentence=read_line(finding, "sentence"),
        symptom=read_line(finding, "symptom"),
        healthy_name=read_line(healthy, "name", MAX_TITLE_CHARS),
        healthy_number=read_line(healthy, "number"),
        cause_kind=cast("CauseKind", cause.choice("kind", get_args(CauseKind))),
        cause=read_line(cause, "sentence"),
        confidence="medium"
        if trust is None
        else cast("Level", trust.choice("level", get_args(Level))),
        confidence_why="a rule of one's own" if trust is None else read_line(trust, "why"),
        cost=read_lines(impact, "cost"),
        users=read_lines(impact, "users"),
        actions=tuple(_read_action(each) for each in file.mappings("actions")),
        silenced_by=file.texts("silenced_by"),
        trials=read_trials(file),
    )
    for part in (finding, healthy, cause, impact, trust, file):
        if part is not None:
            part.done()
    _check_sql(file, rule)
    return rule


def _read_id(file: Fields) -> str:
    own_id = file.text("id", most=MAX_ID_CHARS)
    if not _ID.fullmatch(own_id):
        file.fail("id", f"is {shown(own_id)}: write small letters and digits, words joined by -")
    if own_id in RULES or own_id in _RESERVED:
        file.fail("id", f"{own_id} is a rule of Stepscope's own: choose another name")
    return own_id


def _read_sections(file: Fields) -> tuple[tuple[str, str], ...]:
    page = file.mapping("page")
    sections = []
    for heading in PAGE_SECTIONS:
        text = page.text(heading)
        if _UNDERLINE.search(text):
            page.fail(heading, "has a line of dashes, which begins a section: take it out")
        sections.append((heading, text))
    page.done(known=f"a page has the sections {', '.join(PAGE_SECTIONS)}")
    return tuple(sections)


def _read_thresholds(file: Fields) -> dict[str, Threshold]:
    found = {}
    named = file.mapping("thresholds")
    for name in named.names:
        if not _NAME.fullmatch(name) or name in PLACEHOLDERS:
            named.fail(name, "is no name for a threshold: write small letters, digits and _")
        each = named.mapping(name)
        found[name] = Threshold(
            name=name, value=each.number("value"), source=read_line(each, "source")
        )
        each.done()
    if not found:
        file.fail("thresholds", "is empty: name the number that decides, and its source")
    return found


def _threshold(fields: Fields, name: str, thresholds: dict[str, Threshold]) -> Threshold:
    wanted = fields.text(name)
    if wanted not in thresholds:
        there = ", ".join(thresholds)
        fields.fail(name, f"{shown(wanted)} is no threshold: name one of {there}, or add it there")
    return thresholds[wanted]


def _read_conditions(finding: Fields, thresholds: dict[str, Threshold]) -> tuple[Condition, ...]:
    conditions = []
    for each in finding.mappings("when"):
        compared = [word for word in COMPARISONS if word in each]
        if len(compared) != 1:
            each.fail("column", f"is compared {len(compared)} times: use one of {_words()}")
        column = _column(each, "column")
        conditions.append(
            Condition(
                column=column,
                comparison=compared[0],
                threshold=_threshold(each, compared[0], thresholds),
                name=each.maybe_text("name", most=MAX_TITLE_CHARS) or column.replace("_", " "),
                unit=each.maybe_text("unit", most=20) or "",
            )
        )
        each.done(known=f"a condition has column, name, unit and one of {_words()}")
    if not conditions:
        finding.fail("when", "is missing: say which column is compared with which threshold")
    return tuple(conditions)


def _words() -> str:
    return ", ".join(COMPARISONS)


def _column(fields: Fields, name: str) -> str:
    column = fields.text(name, most=64)
    if not _NAME.fullmatch(column):
        fields.fail(name, f"{shown(column)} is no column: write small letters, digits and _")
    return column


def _read_enough(file: Fields, thresholds: dict[str, Threshold]) -> Enough | None:
    enough = file.maybe_mapping("enough")
    if enough is None:
        return None
    read = Enough(
        column=_column(enough, "column"), threshold=_threshold(enough, "at_least", thresholds)
    )
    enough.done()
    return read


def _read_needs(file: Fields) -> tuple[tuple[str, str], ...]:
    needs = []
    for each in file.texts("needs"):
        table, _, column = each.partition(".")
        columns = columns_of(table)
        if not columns:
            file.fail("needs", f"{shown(table)} is no table or view: docs/step-log.md lists them")
        if column not in columns:
            file.fail("needs", f"{table} has no column {shown(column)}: {', '.join(columns)}")
        if not {"engine", "ts"} <= set(columns):
            file.fail(
                "needs", f"{table} has no engine and ts, so that no window fits: name another"
            )
        needs.append((table, column))
    return tuple(needs)


def _read_action(fields: Fields) -> ActionTemplate:
    action = ActionTemplate(
        what=read_line(fields, "what"),
        flag=fields.maybe_text("flag", most=64),
        to=read_line(fields, "to", 64) if "to" in fields else None,
        applies=cast("Applies", fields.choice("applies", get_args(Applies))),
        trade_off=read_line(fields, "trade_off"),
        verify=fields.maybe_text("verify", most=200) or "stepscope diagnose --since 10m",
        revert=fields.maybe_text("revert", most=200) or "as it was",
    )
    if (action.flag is None) != (action.to is None):
        fields.fail("flag", "flag and to go together: give both, or say it in `what`")
    fields.done()
    return action


def _check_sql(file: Fields, rule: UserRule) -> None:
    """Looks at the statement as at any reader's, before it is ever run."""
    known = {*PLACEHOLDERS, *(each.name for each in rule.thresholds)}
    for name, form in names_in(rule.sql):
        if name not in known or form:
            written = name if form is None else f"{name}:{form}"
            file.fail("sql", f"{{{written}}} is neither of {_braced(known)}: write one of these")
    if not {name for name, _ in names_in(rule.sql)} & {"where", "engine"}:
        file.fail("sql", "looks at all engines and times: add {where}, or {engine}, {start}, {end}")
    numbers: dict[str, object] = {"where": "true", "engine": 0, "start": 0, "end": 0}
    numbers |= {each.name: each.value for each in rule.thresholds}
    with duckdb.connect() as connection:
        try:
            checked_statement(connection, fill_statement(rule.sql, numbers))
        except StepscopeError as error:
            file.fail("sql", str(error))


def _braced(names: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))

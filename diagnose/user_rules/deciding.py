"""Makes a `Rule` of a file: what its statement gives is judged as the file says.

The same verdicts as of any rule. What cannot be asked (a column that this log does not have, a
statement that takes too long) is not measured, with the message; it never ends a diagnosis.
"""

from __future__ import annotations

import hashlib
from typing import Any

from diagnose.finding import (
    Action,
    Cause,
    Evidence,
    Finding,
    Healthy,
    Impact,
    NotMeasured,
    Number,
    RuleVerdict,
    Span,
)
from diagnose.reading import read_rows
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, lacking, measured, not_measured, span_to
from diagnose.user_rules.definition import ActionTemplate, UserRule
from diagnose.user_rules.template import fill_sentence, fill_statement
from telemetry.errors import StepscopeError

Row = dict[str, Any]


def rule_of(own: UserRule) -> Rule:
    """Returns the rule that judges as a file says."""

    def decide(context: Context, earlier: Earlier) -> RuleVerdict:
        return judge(own, context)

    def elsewhere(context: Context, earlier: Earlier) -> RuleVerdict:
        missing = "samples" if own.judges == "scrapes" else "steps"
        return not_measured(own.id, _missing(own) or (missing,), f"it judges {own.judges}")

    by_steps = own.judges == "steps"
    return Rule(
        id=own.id,
        version=own.version,
        prefix=prefix_of(own.id),
        page=own.page,
        decide=decide if by_steps else elsewhere,
        decide_metrics=elsewhere if by_steps else decide,
        silenced_by=own.silenced_by,
    )


def prefix_of(rule_id: str) -> str:
    """Returns the first part of its findings' ids, which no rule of ours begins with."""
    return f"u{hashlib.sha256(rule_id.encode()).hexdigest()[:5]}"


def judge(own: UserRule, context: Context) -> RuleVerdict:
    """Returns what a rule says of an engine."""
    sql = statement_of(own, context)
    try:
        for table in dict.fromkeys(table for table, _ in own.needs):
            columns = (column for each, column in own.needs if each == table)
            if (lacks := lacking(context, own.id, table, *columns)) is not None:
                return lacks
        rows = read_rows(context.log, f"FROM (\n{sql}\n) LIMIT 2")
    except StepscopeError as error:
        return not_measured(own.id, _missing(own) or (own.place,), str(error))
    return judge_rows(own, context, rows)


def statement_of(own: UserRule, context: Context) -> str:
    """Returns the statement with the window's and the thresholds' numbers."""
    scope = context.scope
    numbers: dict[str, object] = {each.name: each.value for each in own.thresholds}
    numbers |= {"where": scope.where(), "engine": scope.engine}
    numbers |= {"start": scope.start_ts, "end": scope.end_ts}
    return fill_statement(own.sql, numbers)


def judge_rows(own: UserRule, context: Context, rows: list[Row]) -> RuleVerdict:
    """Returns what a rule says of what its statement gave."""
    if len(rows) != 1:
        given = "no row" if not rows else "more than one row"
        why = f"the statement gave {given}: it has to give one, an aggregate"
        return not_measured(own.id, (own.place,), why)
    (row,) = rows
    for column in own.columns:
        if (lacks := _unusable(own, row, column)) is not None:
            return lacks
    if own.enough is not None and row[own.enough.column] < own.enough.threshold.value:
        seen, limit = row[own.enough.column], own.enough.threshold.value
        why = f"{own.enough.column} is {seen:,}, {limit:,} are needed"
        return not_measured(own.id, _missing(own) or (own.enough.column,), why)
    if all(each.holds(row[each.column]) for each in own.conditions):
        return _finding(own, context, row)
    number = fill_sentence(own.healthy_number, values_of(own, row))
    return Healthy(rule=own.id, name=own.healthy_name, number=number)


def _missing(own: UserRule) -> tuple[str, ...]:
    return tuple(f"{table}.{column}" for table, column in own.needs)


def _unusable(own: UserRule, row: Row, column: str) -> NotMeasured | None:
    if column not in row:
        there = ", ".join(row)
        why = f"the statement gives no column {column}: it gives {there}"
        return not_measured(own.id, (column,), why)
    value = row[column]
    if value is None:
        return not_measured(own.id, _missing(own) or (column,), f"{column} is not measured")
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return not_measured(own.id, (column,), f"{column} is no number")
    return None


def values_of(own: UserRule, row: Row) -> Row:
    """Returns what a template may name: the columns of the answer, and the thresholds."""
    return {each.name: each.value for each in own.thresholds} | row


def _finding(own: UserRule, context: Context, row: Row) -> Finding:
    values = values_of(own, row)

    def said(template: str) -> str:
        return fill_sentence(template, values)

    kind = own.cause_kind
    return finding(
        context,
        rule_of(own),
        severity=own.severity,
        span=_span(context, row),
        sentence=said(own.sentence),
        symptom=said(own.symptom),
        cause=Cause(kind=kind, sentence=f"{kind.replace('_', ' ')}: {said(own.cause)}"),
        confidence=(own.confidence, said(own.confidence_why)),
        evidence=_evidence(own, context, row),
        impact=Impact(cost=tuple(map(said, own.cost)), users=tuple(map(said, own.users))),
        actions=tuple(_action(context, each, values) for each in own.actions),
    )


def _span(context: Context, row: Row) -> Span:
    """Returns since when it was so, as the statement says; else all of the window."""
    opened, last = row.get("opened_ts"), row.get("last_ts")
    if not isinstance(opened, int) or not isinstance(last, int):
        return Span(opened_ts=context.scope.start_ts, cleared_ts=context.quality.stopped_ts)
    return span_to(context, opened, last)


def _evidence(own: UserRule, context: Context, row: Row) -> tuple[Evidence, ...]:
    n: Number | None = None if own.enough is None else row[own.enough.column]
    return tuple(
        measured(
            each.name,
            row[each.column],
            each.unit,
            statement_of(own, context),
            threshold=each.threshold.value,
            n=None if n is None else round(n),
        )
        for each in own.conditions
    )


def _action(context: Context, action: ActionTemplate, values: Row) -> Action:
    old = None
    if action.flag is not None:
        name, settings = action.flag.lstrip("-").replace("-", "_"), context.settings
        setting = getattr(settings, name, None) or settings.scheduler_setting(name)
        old = None if setting is None else str(setting)
    return Action(
        what=fill_sentence(action.what, values),
        flag=action.flag,
        old=old,
        new=None if action.to is None else fill_sentence(action.to, values),
        applies=action.applies,
        trade_off=action.trade_off,
        verify=action.verify,
        revert=action.revert,
    )

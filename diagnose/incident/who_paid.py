"""Who paid for a finding: the requests that were hit, hardest first."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.accounting import Accounting
from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import Block, Details, Paragraph, Table, Text, code
from diagnose.finding import Affected, Finding
from diagnose.incident.tables import without_empty
from diagnose.reading import QueryLog, Scope, read_rows
from diagnose.text.finding_text import PREEMPTION_RULES
from diagnose.words import NOT_MEASURED, count, duration, harmless, plural

MAX_PAID = 10
"""Requests in the table of those that paid; a cut is named."""

WENT_TO_SQL = """
SELECT request, string_agg(coalesce(beneficiary::VARCHAR, 'cache reset'), ', ' ORDER BY seq) AS who
FROM preemptions WHERE {where} GROUP BY request
"""


def who_paid(log: QueryLog, engine: EngineDiagnosis, finding: Finding) -> Iterator[Block]:
    """Yields the requests that paid, hardest hit first."""
    went_to = _went_to(log, engine, finding)
    head = (
        *("request", "its id", "times", "tokens lost", "recomputed", "time out", "waited"),
        "blocks went to",
    )
    rows = tuple(_payer(paid, went_to) for paid in finding.affected)
    numbers = frozenset({0, 2, 3, 4, 5, 6})
    table = Table("Who paid", head, rows[:MAX_PAID], numbers)
    yield without_empty(table)
    if len(rows) > MAX_PAID:
        more = Table("Who paid as well", head, rows[MAX_PAID:], numbers)
        summary = f"{plural(len(rows) - MAX_PAID, 'more request')} that paid"
        yield Details(summary, (without_empty(more),))
    total = finding.num_affected
    if total is not None and total > len(rows):
        yield Paragraph(f"Showing {len(rows):,} of {total:,} requests, worst first.")
    if finding.rule in PREEMPTION_RULES and engine.accounting.num_from_kv:
        yield Paragraph(_who_paid_sentence(engine.accounting))


def _payer(paid: Affected, went_to: dict[int, str]) -> tuple[Text, ...]:
    return (
        str(paid.request),
        NOT_MEASURED if paid.request_id is None else code(harmless(paid.request_id)),
        count(paid.times),
        count(paid.num_tokens_lost),
        count(paid.num_tokens_recomputed),
        duration(paid.evicted_ns),
        duration(paid.waited_ns),
        harmless(went_to.get(paid.request), 60),
    )


def _went_to(log: QueryLog, engine: EngineDiagnosis, finding: Finding) -> dict[int, str]:
    if engine.metrics is not None or finding.rule not in PREEMPTION_RULES:
        return {}
    end = finding.span.cleared_ts or engine.scope.end_ts
    scope = Scope(finding.engine, finding.span.opened_ts, end)
    return {row["request"]: row["who"] for row in read_rows(log, scope.fill(WENT_TO_SQL))}


def _who_paid_sentence(account: Accounting) -> str:
    return (
        f"Of {plural(account.num_from_kv, 'preemption')} in this window the newer request paid in "
        f"{account.num_newer_paid:,}, the asking one itself in {account.num_itself_paid:,}, an "
        f"older one in {account.num_older_paid:,}."
    )

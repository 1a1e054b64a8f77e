"""What one finding says, as blocks: headline, table, what happened, why, who paid, what to do."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.accounting import Accounting
from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import (
    Block,
    Bullets,
    Details,
    Figure,
    Heading,
    Paragraph,
    Piece,
    Statement,
    Table,
    Text,
    code,
    strong,
)
from diagnose.finding import Action, Affected, Finding, Severity
from diagnose.incident.moments import moments_of, spans_days
from diagnose.life.listing import day_and_time
from diagnose.life.said import NOTHING_SAID, Said
from diagnose.life.table import TITLE, life_table
from diagnose.reading import QueryLog, Scope, read_rows
from diagnose.text.effects_text import amount_of
from diagnose.text.finding_text import PREEMPTION_RULES, threshold_of
from diagnose.text.lines import SHAPES
from diagnose.text.metric_report import account_line
from diagnose.words import (
    NOT_MEASURED,
    count,
    duration,
    harmless,
    number_of,
    percent,
    plural,
    signed_percent,
    stretch,
)

MAX_PAID = 10
"""Requests in the table of those that paid; a cut is named."""
STAGES = {"cause": "cause", "first_failure": "first failure", "impact": "impact"}

WENT_TO_SQL = """
SELECT request, string_agg(coalesce(beneficiary::VARCHAR, 'cache reset'), ', ' ORDER BY seq) AS who
FROM preemptions WHERE {where} GROUP BY request
"""


def write_finding(
    log: QueryLog,
    engine: EngineDiagnosis,
    finding: Finding,
    said: Said = NOTHING_SAID,
    *,
    level: int,
) -> Iterator[Block]:
    """Yields the blocks of a finding; its own sections have headings of `level`.

    `said` is what is stored of it.
    """
    yield Paragraph(_when(engine, finding, said))
    yield Paragraph(strong(finding.sentence))
    yield in_short(engine, finding)
    yield Heading(level, "What happened")
    yield what_happened(log, engine, finding)
    yield Figure(window_of(engine, finding))
    yield Heading(level, "Why we believe it")
    yield from why(finding)
    if finding.affected:
        yield Heading(level, "Who paid")
        yield from who_paid(log, engine, finding)
    yield Heading(level, "What to do")
    yield from what_to_do(finding)
    life = life_table(said)
    if life.rows:
        yield Heading(level, TITLE)
        yield life
    lacking = [*finding.missing, *(set(finding.data_quality) - set(engine.data_quality))]
    if lacking:
        yield Heading(level, "What this finding lacks")
        yield Bullets(tuple(code(name) if "." in name else name for name in lacking))
    yield Details("SQL behind the numbers", tuple(statements(finding)))


def window_of(engine: EngineDiagnosis, finding: Finding) -> Scope:
    """Returns what the charts show: the finding with a margin, inside the window."""
    opened, cleared = finding.span.opened_ts, finding.span.cleared_ts
    end = engine.scope.end_ts if cleared is None else cleared
    margin = max((end - opened) // 10, 1)
    start = max(opened - margin, engine.scope.start_ts)
    return Scope(finding.engine, start, max(min(end + margin, engine.scope.end_ts), start + 1))


def _when(engine: EngineDiagnosis, finding: Finding, said: Said) -> Text:
    opened, cleared = finding.span.opened_ts, finding.span.cleared_ts
    end = engine.scope.end_ts if cleared is None else cleared
    state = "open" if cleared is None else "cleared"
    severity = badge(finding.severity)
    life = strong(said.words) if said.is_silenced else said.words
    return (
        f"{stretch(opened, end)} ({duration(max(end - opened, 0))}) · ",
        strong(severity),
        f" · {state} · rule {finding.rule} v{finding.rule_version} · ",
        code(finding.id),
        *((" · ", life) if said.words else ()),
    )


def badge(severity: Severity) -> str:
    """Returns shape and word of a severity."""
    return f"{SHAPES[severity]} {severity.name.upper()}"


def in_short(engine: EngineDiagnosis, finding: Finding) -> Table:
    """Returns cause, effect, cost, what users felt, and how sure that is."""
    return Table("In short", (), tuple(_short(engine, finding)))


def _short(engine: EngineDiagnosis, finding: Finding) -> Iterator[tuple[Text, ...]]:
    yield "Cause", finding.cause.sentence
    effect = finding.symptom
    if finding.rule in PREEMPTION_RULES:
        effect += f". In this window {account_sentence(engine.accounting)}"
    yield "Effect", effect
    if finding.impact.cost:
        yield "Cost", _sentences(finding.impact.cost)
    if finding.impact.users:
        yield "Users", _sentences(finding.impact.users)
    yield "Confidence", (strong(finding.confidence.level), f": {finding.confidence.why}")


def _sentences(lines: tuple[str, ...]) -> str:
    return ". ".join(line[:1].upper() + line[1:].rstrip(".") for line in lines)


def account_sentence(account: Accounting) -> str:
    """Returns every preemption of a window as one sum, and whether the engine counted as many."""
    if not account.is_recorded:
        return account_line(account)
    total = account.num_rows if account.counter is None else account.counter
    parts = [
        f"{account.num_kv_full:,} kv_full",
        f"{account.num_priority:,} priority",
        f"{account.num_cache_reset:,} cache_reset",
    ]
    if account.num_cause_unknown:
        parts.append(f"{account.num_cause_unknown:,} of unrecorded cause")
    if account.unattributed is not None:
        parts.append(f"{account.unattributed:,} unattributed")
    said = f"{plural(total, 'preemption')} = {' + '.join(parts)}"
    if account.equals_counter is None:
        return f"{said}; the engine's own counter is not recorded"
    if account.equals_counter:
        return f"{said}; equals the engine's own counter"
    return f"{said}; the engine counted {count(account.counter)}"


def what_happened(log: QueryLog, engine: EngineDiagnosis, finding: Finding) -> Table:
    """Returns the moments of a finding in order; those of its chain say their stage."""
    moments = moments_of(log, engine, finding)
    with_day = spans_days(moments)
    stages = {(link.ts, link.sentence): STAGES[link.stage] for link in finding.chain}
    rows = []
    for moment in moments:
        stage = stages.get((moment.ts, moment.sentence))
        said: Text = moment.sentence
        if stage is not None:
            said = (strong(f"{stage}: "), moment.sentence)
        rows.append((moment.time(with_day=with_day), said))
    for link in finding.chain:
        if link.ts is None:
            rows.append((NOT_MEASURED, (strong(f"{STAGES[link.stage]}: "), link.sentence)))
    return Table("What happened", ("UTC", ""), tuple(rows))


def why(finding: Finding) -> Iterator[Block]:
    """Yields what speaks for a finding, what was rejected, and the shares of its causes."""
    yield from _evidence(finding)
    yield from _shares(finding)


def _evidence(finding: Finding) -> Iterator[Block]:
    rows = tuple(
        (
            item.name,
            number_of(item.value, item.unit),
            threshold_of(item),
            NOT_MEASURED if item.baseline is None else number_of(item.baseline, item.unit),
            count(item.n),
            item.provenance,
        )
        for item in finding.evidence
    )
    if rows:
        head = ("evidence", "value", "threshold", "baseline", "n", "how known")
        yield without_empty(Table("Evidence", head, rows, frozenset({1, 2, 3, 4})))
    if finding.rejected:
        told = (f"{item.name} ({item.number})" for item in finding.rejected)
        yield Paragraph((strong("Rejected: "), " · ".join(told), "."))


def _shares(finding: Finding) -> Iterator[Block]:
    if not finding.shares:
        return
    total = sum(share.num for share in finding.shares)
    rows = [(share.name, f"{share.num:,.1f}", percent(share.ratio)) for share in finding.shares]
    rows.append(("all", f"{total:,.1f}", percent(sum(s.ratio for s in finding.shares))))
    yield Paragraph(_whose_shares(finding, total))
    yield Table(
        "Shares of the causes", ("change", "count", "share"), tuple(rows), frozenset({1, 2})
    )


def _whose_shares(finding: Finding, total: float) -> str:
    """Returns of what the shares are: this look's, or those that an analyst stored before."""
    if finding.shared_ts is None:
        return "What each change accounts for; the shares add up to all of it:"
    until = day_and_time(finding.shared_ts)
    return (
        f"What each change accounts for, as the analyst replayed and stored it; the shares add up "
        f"to the {total:,.0f} that there were until {until}:"
    )


# --------------------------------------------------------------------------------------- who paid


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


def without_empty(table: Table) -> Table:
    """Returns a table without the columns in which nothing was measured."""
    kept = [
        column
        for column in range(len(table.head))
        if any(row[column] not in (NOT_MEASURED, NO_FLAG, "") for row in table.rows)
    ]
    return Table(
        table.name,
        tuple(table.head[column] for column in kept),
        tuple(tuple(row[column] for column in kept) for row in table.rows),
        frozenset(kept.index(column) for column in table.numbers if column in kept),
    )


# -------------------------------------------------------------------------------------- what to do


def what_to_do(finding: Finding) -> Iterator[Block]:
    """Yields the changes that help, what each costs, how to check and how to undo it."""
    if not finding.actions:
        yield Paragraph("No setting of this engine helps against it; see the cause.")
        return
    rows = tuple(
        (_change(action), TAKES_EFFECT[action.applies], action.what, action.trade_off)
        for action in finding.actions
    )
    yield without_empty(Table("What to do", ("change", "takes effect", "why", "price"), rows))
    yield from _effects(finding)
    verifies = tuple(dict.fromkeys(action.verify for action in finding.actions))
    reverts = tuple(dict.fromkeys(action.revert for action in finding.actions))
    yield Paragraph(("Verify: ", *_codes(verifies), ". Revert: ", *_codes(reverts), "."))


def _effects(finding: Finding) -> Iterator[Block]:
    """Yields what replays say that each change would do."""
    told = [action for action in finding.actions if action.predicted]
    if told:
        rows: list[tuple[Text, ...]] = [
            ("as it was", *(amount_of(each, each.before) for each in told[0].predicted))
        ]
        rows += [
            (
                code(f"{action.flag} {action.new}"),
                *(amount_of(e, e.after) for e in action.predicted),
            )
            for action in told
        ]
        error = ["error of the replay"]
        error += ["–" if e.error is None else signed_percent(e.error) for e in told[0].predicted]
        head = ("replayed", *(effect.label for effect in told[0].predicted))
        yield Table("Predicted", head, (*rows, tuple(error)), frozenset(range(1, len(head))))
    if finding.prediction:
        yield Paragraph(finding.prediction)


NO_FLAG = "no setting"
TAKES_EFFECT = {"live": "at once", "restart": "after a restart", "client": "at the client"}


def _change(action: Action) -> Text:
    if action.flag is None:
        return NO_FLAG
    return (code(f"{action.flag} {action.new}"), f" (now {action.old})")


def _codes(told: tuple[str, ...]) -> Iterator[Piece | str]:
    for number, text in enumerate(told):
        if number:
            yield ", "
        yield code(text)


def statements(finding: Finding) -> Iterator[Statement]:
    """Yields the statements behind a finding's numbers, each once."""
    seen: dict[str, list[str]] = {}
    for item in finding.evidence:
        seen.setdefault(item.sql, []).append(item.name)
    for sql, names in seen.items():
        yield Statement("; ".join(names), f"{sql.strip().rstrip(';')};")

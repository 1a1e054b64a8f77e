"""What one finding says, as blocks: how it begins, and its sections in their order."""

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
    Table,
    Text,
    code,
    strong,
)
from diagnose.finding import Finding, Severity
from diagnose.incident.evidence import statements, what_happened, why
from diagnose.incident.what_to_do import what_to_do
from diagnose.incident.who_paid import who_paid
from diagnose.life.said import NOTHING_SAID, Said
from diagnose.life.table import TITLE, life_table
from diagnose.reading import QueryLog, Scope
from diagnose.text.finding_text import PREEMPTION_RULES
from diagnose.text.lines import SHAPES
from diagnose.text.metric_report import account_line
from diagnose.words import count, duration, plural, stretch


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

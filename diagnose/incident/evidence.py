"""What speaks for a finding: what happened, the evidence, the causes' shares, the SQL behind it."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import Block, Paragraph, Statement, Table, Text, strong
from diagnose.finding import Finding
from diagnose.incident.moments import moments_of, spans_days
from diagnose.incident.tables import without_empty
from diagnose.life.listing import day_and_time
from diagnose.reading import QueryLog
from diagnose.text.finding_text import threshold_of
from diagnose.words import NOT_MEASURED, count, number_of, percent

STAGES = {"cause": "cause", "first_failure": "first failure", "impact": "impact"}


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


def statements(finding: Finding) -> Iterator[Statement]:
    """Yields the statements behind a finding's numbers, each once."""
    seen: dict[str, list[str]] = {}
    for item in finding.evidence:
        seen.setdefault(item.sql, []).append(item.name)
    for sql, names in seen.items():
        yield Statement("; ".join(names), f"{sql.strip().rstrip(';')};")

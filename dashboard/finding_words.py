"""What the page of findings says of them: how many, since when, and what people said."""

from __future__ import annotations

from dataclasses import replace

from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import Piece, Table, Text, code, strong
from diagnose.finding import NO_FAULT, Finding
from diagnose.life import FindingState
from diagnose.life.listing import ended_words
from diagnose.life.shares import shares_words
from diagnose.words import NOT_MEASURED, harmless, plural, time_of_day, utc


def headline(engine: EngineDiagnosis) -> str:
    """Returns how many findings are open, cleared, well and unknown, as one sentence."""
    parts = [_found(len(engine.findings), sum(each.is_open for each in engine.findings))]
    well = sum(each.is_used and each.rule != NO_FAULT for each in engine.healthy)
    parts += [f"{plural(well, 'check')} {'is' if well == 1 else 'are'} well" if well else ""]
    unknown = len(engine.not_measured)
    parts += [f"{unknown:,} could not be judged" if unknown else ""]
    said = "; ".join(part for part in parts if part)
    return f"{said}." if engine.findings else f"No finding. {said[:1].upper()}{said[1:]}."


def _found(num_found: int, num_open: int) -> str:
    found = plural(num_found, "finding") if num_found else ""
    if num_open in (0, num_found):
        state = "open" if num_open else "cleared"
        return found and f"{found}, {'all ' if num_found > 1 else ''}{state}"
    return f"{found}: {num_open:,} open, {num_found - num_open:,} cleared"


def life_table(state: FindingState, now: int) -> Table:
    """Returns what is stored of a finding: its openings, and what people said."""
    rows: list[tuple[Text, ...]] = [("First opened", _moment(state.first_opened_ts))]
    now_is = f", since {_moment(state.changed_ts)}"
    if state.status == "ended":
        now_is = f": {ended_words(state)}"
    rows.append(("Now", (strong(state.status), now_is)))
    if state.shares:
        shared_ts = state.document.get("shared_ts")
        when = f" (replayed {_moment(shared_ts)})" if isinstance(shared_ts, int) else ""
        rows.append(("Shares", harmless(shares_words(state.shares), 400) + when))
    rows.append(("Opened", plural(state.num_openings, "time")))
    rows.append(("Told", plural(state.num_changes, "change")))
    if state.acknowledged_ts is not None:
        said = _said(state.acknowledged_by, state.acknowledged_note)
        rows.append(("Acknowledged", f"{_moment(state.acknowledged_ts)} {said}"))
    if state.silenced_until_ts is not None:
        said = _said(state.silenced_by, state.silenced_note)
        over = "" if state.is_silenced(now) else " (over)"
        rows.append(("Silenced", f"until {_moment(state.silenced_until_ts)}{over} {said}"))
    return Table("Life of the finding", (), tuple(rows))


def _said(author: str | None, note: str | None) -> str:
    by = f"by {harmless(author)}" if author else "by nobody named"
    return f"{by}: {harmless(note, 200)}" if note else by


def life_words(state: FindingState | None, now: int) -> str:
    """Returns in a few words how it goes on, and whether somebody knows of it."""
    if state is None:
        return ""
    words = []
    if state.status == "flapping":
        words.append("comes and goes")
    if state.status == "ended":
        words.append(ended_words(state))
    if state.acknowledged_ts is not None:
        words.append(f"acknowledged by {harmless(state.acknowledged_by)}")
    if state.is_silenced(now) and state.silenced_until_ts is not None:
        until = _moment(state.silenced_until_ts)
        words.append(f"silenced by {harmless(state.silenced_by)} until {until}")
    return "  ·  ".join(words)


def with_stored_shares(finding: Finding, state: FindingState | None) -> Finding:
    """Returns a finding with the shares that are stored of it, where it has none of its own.

    A live page replays nothing: the analyst beside the collector did. Shares of another opening are
    not its own.
    """
    if finding.shares or state is None or not _overlap(finding, state):
        return finding
    return replace(finding, shares=state.told_shares)


def _overlap(finding: Finding, state: FindingState) -> bool:
    begins = finding.span.cleared_ts is None or state.opened_ts <= finding.span.cleared_ts
    return begins and (state.cleared_ts is None or finding.span.opened_ts <= state.cleared_ts)


def _moment(ts: int) -> str:
    return f"{utc(ts):%Y-%m-%d} {time_of_day(ts, 0)} UTC"


def unjudged(engine: EngineDiagnosis) -> Table:
    """Returns the rules that could not judge, with the signal that each lacks."""
    rows = tuple(
        (code(each.rule), tuple(_names(each.missing)), each.why) for each in engine.not_measured
    )
    return Table("Not measured", ("rule", "missing signal", "why"), rows)


def _names(missing: tuple[str, ...]) -> list[str | Piece]:
    named: list[str | Piece] = []
    for name in missing or (NOT_MEASURED,):
        named += [", "] if named else []
        named.append(code(name))
    return named


def healthy(engine: EngineDiagnosis) -> Table:
    """Returns what was looked at and is well, with its number."""
    rows = tuple(
        (code(each.rule), each.name, each.number)
        for each in engine.healthy
        if each.is_used and each.rule != NO_FAULT
    )
    return Table("Looked at and well", ("rule", "what", "number"), rows)


def silenced(engine: EngineDiagnosis) -> Table:
    """Returns what another rule or guard explains, with the number that it goes by."""
    found = {finding.rule for finding in engine.findings}
    rows = tuple(
        (
            "a note" if each.rule is None else code(each.rule),
            code(each.by),
            "its numbers are those of the finding" if each.by in found else each.number,
        )
        for each in engine.suppressed
    )
    return Table("Silenced", ("rule", "by", "number"), rows)

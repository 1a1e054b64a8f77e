"""The life of a finding as a table: on its page, and in a report that is handed on."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document import Table, Text, strong
from diagnose.life.listing import day_and_time, ended_words
from diagnose.life.said import Said
from diagnose.life.shares import shares_words
from diagnose.life.state import FindingState
from diagnose.words import harmless, plural, time_of_day

TITLE = "Its life, as stored"
NOT_STORED = (
    "No life is stored: findings are followed while a collector runs, and by `stepscope watch`."
)
"""Where nothing of a finding is stored: that nobody followed it is not that nothing happened."""
_Row = tuple[Text, ...]


def life_table(said: Said) -> Table:
    """Returns what is stored of a finding, and what people said; no row where there is nothing."""
    rows: list[_Row] = []
    if said.state is not None:
        rows += _life(said.state, said.cleared_ts)
    rows += _silenced(said)
    return Table("Life of the finding", (), tuple(rows))


def _life(state: FindingState, cleared_ts: int | None) -> Iterator[_Row]:
    yield "First opened", day_and_time(state.first_opened_ts)
    yield "Now", (strong(state.status), _now(state, cleared_ts))
    if state.shares:
        when = (
            "" if state.shared_ts is None else f" (replayed up to {day_and_time(state.shared_ts)})"
        )
        yield "Shares", harmless(shares_words(state.shares), 400) + when
    yield "Opened", plural(state.num_openings, "time")
    yield "Told", plural(state.num_changes, "change")
    if state.acknowledged_ts is not None:
        by = _by(state.acknowledged_by, state.acknowledged_note)
        yield "Acknowledged", f"{day_and_time(state.acknowledged_ts)} {by}"


def _now(state: FindingState, cleared_ts: int | None) -> str:
    if state.status == "ended":
        over = (
            "" if cleared_ts is None else f"; by the log it was over at {time_of_day(cleared_ts)}"
        )
        return f": {ended_words(state)}{over}"
    if state.status == "flapping":
        return f": comes and goes, since {day_and_time(state.changed_ts)}"
    return f", since {day_and_time(state.cleared_ts or state.opened_ts)}"


def _silenced(said: Said) -> Iterator[_Row]:
    """Yields the silence in force; one that is over where there is none."""
    state, silence = said.state, said.silence
    if silence is not None:
        by = _by(silence.author, silence.note)
        yield "Silenced", (strong(f"until {day_and_time(silence.until_ts)}"), f" {by}")
    elif state is not None and state.silenced_until_ts is not None:
        by = _by(state.silenced_by, state.silenced_note)
        yield "Silenced", f"until {day_and_time(state.silenced_until_ts)} (over) {by}"


def _by(author: str | None, note: str | None) -> str:
    by = f"by {harmless(author)}" if author else "by nobody named"
    return f"{by}: {harmless(note, 200)}" if note else by

"""What-ifs that somebody chose to hand on with a report, and how far each can be trusted.

The numbers are `diagnose.replay`'s; this only writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from diagnose.document import Block, Bullets, Heading, Paragraph, Table, Text, code, strong
from diagnose.reading import QueryLog, Scope
from diagnose.replay.asked import Clients, read_asked
from diagnose.replay.prediction import Changed, Predicted, Prediction, Trust, predict
from diagnose.replay.settable import Changes
from diagnose.replay.whatif_words import (
    amount,
    band,
    changes_of,
    clients_text,
    flags_of,
    headline,
)
from diagnose.words import NOT_MEASURED, plural, signed_percent, stretch

if TYPE_CHECKING:
    from diagnose.diagnosis import EngineDiagnosis
    from diagnose.window import Window

TOLD = (
    "num_preemptions",
    "num_tokens_recomputed",
    "ttft_p95",
    "longest_pause_p95",
    "e2e_mean",
    "output_tokens_per_second",
)
"""Quantities of the table, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A prediction, and the window whose load was replayed for it."""

    scope: Scope
    prediction: Prediction


def foresee(
    log: QueryLog,
    engine: EngineDiagnosis,
    window: Window,
    changes: Changes,
    clients: Clients | None = None,
    *,
    is_whole: bool,
) -> WhatIf:
    """Returns what changes would do to the load of an engine that was diagnosed.

    Args:
        log: what it was diagnosed from.
        engine: its diagnosis.
        window: the window of that.
        changes: the settings, by name.
        clients: how clients behave; as was detected if `None`.
        is_whole: the window is all of a closed log.

    Raises:
        ReplayError: the log lacks what a replay needs.
        ValueError: a change or a number of clients is not possible; the message says why.
    """
    workload = read_asked(log, engine.scope.engine, window, clients, is_whole=is_whole)
    return WhatIf(scope=engine.scope, prediction=predict(workload, changes))


def write_whatifs(whatifs: Sequence[WhatIf], *, level: int) -> Iterator[Block]:
    """Yields a heading of `level` and each what-if under it; nothing where there is none."""
    if not whatifs:
        return
    yield Heading(level, "What a change would do")
    for whatif in whatifs:
        yield from _one(whatif)


def _one(whatif: WhatIf) -> Iterator[Block]:
    prediction = whatif.prediction
    yield Paragraph(strong(headline(prediction)))
    replayed = plural(prediction.num_requests, "recorded request")
    when = stretch(whatif.scope.start_ts, whatif.scope.end_ts)
    yield Paragraph(f"Replayed: {replayed} of {when}; {clients_text(prediction.clients)}.")
    yield _table(prediction)
    notes: list[Text] = [*prediction.notes]
    trusts = {each.trust for each in _told(prediction)}
    if Trust.DIRECTION in trusts:
        notes.append("▲ the replay is over 10 % off the record: read the direction, not the number")
    if Trust.WITHHELD in trusts:
        notes.append("withheld: the replay is over 25 % off the record, nothing is predicted")
    notes.append("The replays are compared with each other, never with the record.")
    yield Bullets(tuple(notes))
    flags = flags_of(prediction)
    if flags:
        yield Paragraph(("Flags: ", code(flags), ". Revert: ", code(undo_of(prediction)), "."))


def undo_of(prediction: Prediction) -> str:
    """Returns the flags that take the changes back; a flag that was not given is to be left out."""
    given = [each for each in prediction.changes if each.before is not None]
    back = tuple(replace(each, before=each.after, after=each.before) for each in given)
    left_out = flags_of(replace(prediction, changes=_not_given(prediction)))
    return flags_of(replace(prediction, changes=back)) or f"without {left_out}"


def _not_given(prediction: Prediction) -> tuple[Changed, ...]:
    return tuple(each for each in prediction.changes if each.before is None)


def _told(prediction: Prediction) -> list[Predicted]:
    return [prediction.of(name) for name in TOLD]


def _table(prediction: Prediction) -> Table:
    replays = plural(prediction.num_replays, "replay")
    head = ("quantity", "recorded", "replayed", "error", "changed", "change", f"range of {replays}")
    rows = tuple(_row(each) for each in _told(prediction))
    return Table(changes_of(prediction), head, rows, frozenset(range(1, len(head))))


def _row(each: Predicted) -> tuple[Text, ...]:
    quantity = each.quantity
    sign = " ▲" if each.trust is Trust.DIRECTION else ""
    return (
        quantity.label,
        amount(quantity, each.recorded),
        amount(quantity, each.replayed),
        _share(each.error) + sign,
        amount(quantity, each.predicted) if each.is_told else each.trust.value,
        _share(each.change) + sign if each.is_told else NOT_MEASURED,
        band(quantity, each.low, each.high) if each.is_told else NOT_MEASURED,
    )


def _share(ratio: float | None) -> str:
    return NOT_MEASURED if ratio is None else signed_percent(ratio)

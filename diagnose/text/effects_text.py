"""Predicted effects of actions as a table: a row an action, a column a quantity."""

from __future__ import annotations

from diagnose.finding import Action, Effect, Finding
from diagnose.replay.measures import QUANTITIES
from diagnose.replay.whatif_words import amount
from diagnose.text.lines import Report
from diagnose.words import signed_percent

_BY_NAME = {quantity.name: quantity for quantity in QUANTITIES}
_LABEL = 38
WITHHELD = "withheld"


def write_effects(report: Report, finding: Finding) -> None:
    """Adds what the actions would do, and how far that can be believed; or why nobody knows."""
    told = [action for action in finding.actions if action.predicted]
    if not told:
        if finding.prediction:
            report.wrapped(finding.prediction, 2, "muted")
        return
    first = told[0].predicted
    widths = [max(12, len(_head(effect)) + 2) for effect in first]
    head = "".join(_head(each).rjust(w) for each, w in zip(first, widths, strict=True))
    report.add(("  replayed".ljust(_LABEL) + head, "muted"))
    before = [amount_of(effect, effect.before) for effect in first]
    _row(report, "as it was", before, widths)
    for action in told:
        after = [amount_of(each, each.after) for each in action.predicted]
        _row(report, _flag(action), after, widths)
    errors = ", ".join(
        f"{each.label} {signed_percent(each.error)}" for each in first if each.error is not None
    )
    report.wrapped(f"replay error on this run: {errors}", 2, "muted")
    if not all(each.is_exact for each in first):
        report.wrapped("▲ over 10 %: read the direction only; over 25 % is withheld", 2, "muted")
    report.wrapped(f"{finding.prediction} More: stepscope whatif --scan NAME", 2, "muted")


def _row(report: Report, name: str, cells: list[str], widths: list[int]) -> None:
    line = "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    report.add((f"    {name}".ljust(_LABEL), "flag"), line)


def _head(effect: Effect) -> str:
    is_direction = not effect.is_exact and effect.after is not None
    label = effect.label.removeprefix("output ")
    return f"{label} ▲" if is_direction else label


def _flag(action: Action) -> str:
    return f"{action.flag} {action.new}"


def amount_of(effect: Effect, value: float | None) -> str:
    """Returns a value of an effect with its unit."""
    return WITHHELD if value is None else amount(_BY_NAME[effect.name], value)

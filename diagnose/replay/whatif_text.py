"""Predictions as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.replay.prediction import Predicted, Prediction, Trust
from diagnose.replay.smallest import Step
from diagnose.replay.whatif_words import (
    amount,
    band,
    changes_of,
    clients_text,
    flags_of,
    headline,
    value_text,
)
from diagnose.replay.workload import Workload
from diagnose.text.lines import Report, Role
from diagnose.words import signed_percent

MAIN = (
    "num_preemptions",
    "num_tokens_recomputed",
    "ttft_p95",
    "longest_pause_p95",
    "e2e_mean",
    "output_tokens_per_second",
)
"""Quantities that are printed where not all are asked for."""
_LABEL, _COLUMN = 23, 11
_SCANNED = {
    "num_preemptions": 13,
    "ttft_p95": 17,
    "longest_pause_p95": 19,
    "e2e_mean": 20,
    "output_tokens_per_second": 17,
}
"""Columns of a scan, and how wide they are."""
_VALUE = 12


def write_prediction(workload: Workload, prediction: Prediction, *, is_full: bool) -> Report:
    """Returns one prediction: the table, what is gained and what it costs, what to know."""
    report = Report()
    _write_load(report, workload, prediction, changes_of(prediction))
    _write_table(report, prediction, is_full=is_full)
    report.add()
    report.wrapped(_in_terminal(headline(prediction)), 0, "strong")
    _write_trust(report, _shown(prediction, is_full=is_full))
    _write_notes(report, workload, prediction)
    flags = flags_of(prediction)
    if flags:
        report.wrapped(flags, 11, "flag", "to do it")
    return report


def _in_terminal(text: str) -> str:
    """Returns a text of the pages as a terminal shows it."""
    return text.replace("→", "->")


def _write_load(report: Report, workload: Workload, prediction: Prediction, title: str) -> None:
    told = (
        f"{prediction.num_requests:,} recorded requests replayed; "
        f"{clients_text(prediction.clients)}"
    )
    report.add((_in_terminal(title), "strong"), "  ", told)
    report.wrapped(workload.clients.reason, 2, "muted")
    times = workload.step_times
    report.wrapped(
        f"step times learned from {times.num_steps:,} steps of {times.mean_ns / 1e6:.3g} ms: "
        f"{100 * times.error_ratio:.0f} % off in a step, "
        f"{100 * times.explained_ratio:.0f} % of the variance explained",
        2,
        "muted",
    )
    report.add()


def _write_table(report: Report, prediction: Prediction, *, is_full: bool) -> None:
    single = prediction.changes[0] if len(prediction.changes) == 1 else None
    before = "replay" if single is None else f"replay {value_text(single.before)}"
    after = "changed" if single is None else f"replay {value_text(single.after)}"
    head = ("recorded", before[:_COLUMN], "error", after[:_COLUMN], "change")
    columns = "".join(name.rjust(_COLUMN) for name in head)
    report.add(" " * _LABEL, (columns, "muted"), (f"   {prediction.num_replays} replays", "muted"))
    for each in _shown(prediction, is_full=is_full):
        _write_row(report, each)
    for cause, num_before, num_after in prediction.by_cause if is_full else ():
        cells = "".join(
            text.rjust(_COLUMN) for text in ("", f"{num_before:,}", "", f"{num_after:,}", "")
        )
        report.add((f"    of them {cause}".ljust(_LABEL), "muted"), cells)


def _shown(prediction: Prediction, *, is_full: bool) -> list[Predicted]:
    return [each for each in prediction.quantities if is_full or each.quantity.name in MAIN]


def _write_row(report: Report, each: Predicted) -> None:
    quantity = each.quantity
    sign = " ▲" if each.trust is Trust.DIRECTION else "  "
    cells = (
        amount(quantity, each.recorded),
        amount(quantity, each.replayed),
        _share(each.error) + sign,
        amount(quantity, each.predicted) if each.is_told else each.trust.value,
        (_share(each.change) + sign) if each.is_told else "",
    )
    ranged = ""
    if each.is_told:
        ranged = f"   {band(quantity, each.low, each.high)}"
    role: Role = "plain" if each.is_told else "muted"
    row = f"  {quantity.label}".ljust(_LABEL) + "".join(cell.rjust(_COLUMN) for cell in cells)
    report.add((row + ranged, role))


def _write_trust(report: Report, shown: Sequence[Predicted]) -> None:
    trusts = {each.trust for each in shown}
    if Trust.DIRECTION in trusts:
        report.wrapped("replay error over 10 %: read the direction, not the number.", 2, label="▲")
    if Trust.WITHHELD in trusts:
        names = ", ".join(
            f"{each.quantity.label} ({_share(each.error)})"
            for each in shown
            if each.trust is Trust.WITHHELD
        )
        report.wrapped(f"replay error over 25 %, nothing is predicted: {names}", 2, label="–")


def _write_notes(report: Report, workload: Workload, prediction: Prediction) -> None:
    for note in prediction.notes:
        report.wrapped(note, 2, label="●")
    report.wrapped(
        "the replays are compared with each other, never with the record", 2, "muted", "●"
    )


# -------------------------------------------------------------------------------- many predictions


def write_scan(workload: Workload, name: str, predictions: Sequence[Prediction]) -> Report:
    """Returns a table with a row a value of one setting; the recorded one comes first."""
    report = Report()
    _write_load(report, workload, predictions[0], f"scan of {name}")
    columns = [(predictions[0].of(column), width) for column, width in _SCANNED.items()]
    head = "".join(each.quantity.label.rjust(width) for each, width in columns)
    report.add((" " * _VALUE + head, "muted"))
    first = predictions[0].changes[0]
    recorded = "".join(amount(each.quantity, each.replayed).rjust(w) for each, w in columns)
    report.add(value_text(first.before).ljust(_VALUE), recorded, ("  now", "muted"))
    for prediction in predictions:
        cells = "".join(_scan_cell(prediction.of(c)).rjust(w) for c, w in _SCANNED.items())
        sign = "  ×" if prediction.costs_more_than_it_gains else ""
        report.add(value_text(prediction.changes[0].after).ljust(_VALUE), cells, (sign, "cost"))
    report.add()
    _write_trust(report, [each for each, _ in columns])
    if any(prediction.costs_more_than_it_gains for prediction in predictions):
        report.wrapped(
            "dearer than it gains: output rate or whole answers get worse by over 5 %; the aim is "
            "latency and output rate, not zero preemptions",
            2,
            label="×",
        )
    return report


def _scan_cell(each: Predicted) -> str:
    return amount(each.quantity, each.predicted) if each.is_told else each.trust.value


def write_smallest(report: Report, steps: Sequence[Step]) -> None:
    """Adds the smallest changes that reach each goal."""
    report.add()
    if not steps:
        report.add("no tried change removes half of the preemptions")
        return
    report.add(("smallest change, of those tried, that removes", "strong"))
    goal = None
    for step in steps:
        prediction = step.prediction
        named = "" if step.goal == goal else _goal(step.goal)
        goal = step.goal
        dear = "  ×" if prediction.costs_more_than_it_gains else ""
        told = ", ".join(
            f"{each.quantity.label} {_scan_cell(each)}"
            for name in list(_SCANNED)[1:]
            if (each := prediction.of(name)).is_told
        )
        report.wrapped(
            f"{flags_of(prediction) or _in_terminal(changes_of(prediction))}  "
            f"{_share(prediction.of('num_preemptions').change)}  ({step.needs}){dear}",
            8,
            "flag",
            f"  {named}",
        )
        report.wrapped(told, 10, "muted")


def _goal(share: float) -> str:
    return {0.5: "half", 0.8: "80 %", 1.0: "all"}.get(share, f"{share:.0%}")


def _share(ratio: float | None) -> str:
    return "–" if ratio is None else signed_percent(ratio)

"""How a comparison is put into words: values, changes, what follows from them."""

from __future__ import annotations

from diagnose.diff.comparison import Diff, Quantity
from diagnose.diff.noise import Outcome
from diagnose.diff.side import Side
from diagnose.text.metric_report import size_of
from diagnose.words import NOT_MEASURED, duration, engine_hex, harmless, percent, plural, stretch

SIGNS: dict[Outcome, str] = {
    "beyond_noise": "▲",
    "within_noise": "·",
    "too_few": "?",
    "not_measured": NOT_MEASURED,
}
LEGEND = "▲ beyond noise   · within noise   ? too few samples   – not measured"
FATES = {"new": "new in B", "gone": "gone in B", "same": "in both", "unknown": "not comparable"}


def shown(value: float | None, unit: str) -> str:
    """Returns a value in its unit, or a dash where it was not measured."""
    if value is None:
        return NOT_MEASURED
    match unit:
        case "ns":
            return duration(value)
        case "ratio":
            return percent(value)
        case "tokens":
            return f"{value:,.0f}"
        case _:
            return _three_digits(value)


def _three_digits(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def change_of(quantity: Quantity) -> str:
    """Returns by how much B differs from A: `+12 %`, in points for shares, `3.1 x` for much."""
    if quantity.a is None or quantity.b is None:
        return NOT_MEASURED
    if quantity.unit == "ratio":
        return f"{100 * (quantity.b - quantity.a):+.1f} pt"
    ratio = quantity.change_ratio
    if ratio is None:
        return "from 0"
    return f"{ratio + 1:,.1f} x" if ratio > 1 else f"{100 * ratio:+.0f} %"


def counts_of(quantity: Quantity) -> str:
    """Returns the samples of both sides."""
    told = (NOT_MEASURED if n is None else f"{n:,}" for n in (quantity.num_a, quantity.num_b))
    return " / ".join(told)


def name_of(side: Side) -> str:
    """Returns the engine of a side: `engine 0 tiny-llama`."""
    settings = side.diagnosis.settings
    rank = settings.dp_rank
    number = engine_hex(side.scope.engine) if rank is None else str(rank)
    return f"engine {number}" + (f" {harmless(settings.model, 24)}" if settings.model else "")


def extent_of(side: Side) -> str:
    """Returns window and size of a side."""
    engine = side.diagnosis
    when = stretch(side.scope.start_ts, side.scope.end_ts)
    if engine.metrics is not None:
        return f"{when}  {size_of(engine.metrics)}"
    requests = plural(engine.accounting.num_requests, "request")
    return f"{when}  {plural(engine.steps.num_steps, 'step')}, {requests}"


def headline(diff: Diff) -> str:
    """Returns what became of the findings, and how much differs, as one sentence."""
    fates = {
        fate: [change.rule for change in diff.findings if change.fate == fate]
        for fate in ("new", "gone", "same", "unknown")
    }
    parts = [
        f"{', '.join(rules)} {'is' if len(rules) == 1 else 'are'} {FATES[fate]}"
        for fate, rules in fates.items()
        if rules
    ]
    found = "; ".join(parts) or "No finding on either side"
    num = len(diff.beyond_noise)
    of = plural(len(diff.quantities), "quantity").replace("quantitys", "quantities")
    return f"{found}. {num:,} of {of} differ beyond noise."


def of_one_side(diff: Diff) -> str:
    """Returns the settings of which only one side tells: whether they differ is not known."""
    names = ", ".join(harmless(setting.name) for setting in diff.settings_of_one_side)
    return f"told by one side only, so not compared: {names}"


def cautions(diff: Diff) -> list[str]:
    """Returns what a reader must know before taking B for the effect of a change."""
    told = []
    traffic = [each.name for each in diff.beyond_noise if each.group == "traffic"]
    if traffic and diff.settings:
        told.append(
            f"the traffic differs as well ({', '.join(traffic)}): a difference need not come from "
            "the settings"
        )
    for side in (diff.a, diff.b):
        if side.num_others:
            others = plural(side.num_others, "further engine start")
            told.append(
                f"{side.name}: {others} in the window not compared (--engine-a, --engine-b)"
            )
        told += [f"{side.name}: {said}" for said in side.diagnosis.data_quality]
    if diff.a.log is diff.b.log and diff.a.scope.engine == diff.b.scope.engine and _overlap(diff):
        told.append("the windows overlap: what lies in both is compared with itself")
    return told


def _overlap(diff: Diff) -> bool:
    a, b = diff.a.scope, diff.b.scope
    return a.start_ts < b.end_ts and b.start_ts < a.end_ts

"""A prediction in words: what would be gained, what it would cost, how numbers are written."""

from __future__ import annotations

from typing import Any

from diagnose.replay.measures import Quantity
from diagnose.replay.prediction import Predicted, Prediction, Trust
from diagnose.replay.settable import SETTINGS
from diagnose.replay.workload import Clients
from diagnose.words import signed_percent

MAX_PRICES = 2
"""Prices that a sentence names, the dearest first."""

_PRICED = ("ttft_p95", "longest_pause_p95", "itl_p95", "e2e_mean")


def headline(prediction: Prediction) -> str:
    """Returns gain first, price second, in two sentences."""
    return f"{gain_of(prediction)} {price_of(prediction)}"


def gain_of(prediction: Prediction) -> str:
    """Returns what a prediction says of preemptions; of whatever gets better, if there are none."""
    what = changes_of(prediction)
    counted = prediction.of("num_preemptions")
    if not counted.is_told or counted.predicted is None or counted.replayed is None:
        return f"{what}: how many preemptions it would avoid is withheld, {why_withheld(counted)}."
    avoided = round(counted.replayed) - round(counted.predicted)
    base = f"{round(counted.replayed):,}"
    if avoided > 0:
        return f"{what} would avoid {avoided:,} of {base} preemptions."
    if avoided < 0:
        return f"{what} would add {-avoided:,} preemptions to {base}."
    better = [_moved(each) for each in _clear(prediction, is_worse=False)]
    if better:
        return f"{what} would change {better[0]}, and leave the preemptions at {base}."
    return f"{what} would leave the preemptions at {base}."


def price_of(prediction: Prediction) -> str:
    """Returns what gets worse, and whether that is more than what is gained."""
    worse = _clear(prediction, is_worse=True)
    rate = prediction.of("output_tokens_per_second")
    named = ([rate] if rate.is_worse else []) + worse
    if not named:
        return "No price shows in the replay."
    price = f"The price: {', '.join(_moved(each) for each in named[:MAX_PRICES])}."
    if prediction.costs_more_than_it_gains:
        price += " It outweighs the gain: the aim is latency and output rate, not zero preemptions."
    return price


def changes_of(prediction: Prediction) -> str:
    """Returns the changes: `max_num_seqs 32 → 11, watermark 0 → 0.05`."""
    return ", ".join(
        f"{each.name} {value_text(each.before)} → {value_text(each.after)}"
        for each in prediction.changes
    )


def flags_of(prediction: Prediction) -> str:
    """Returns the changes as command-line flags; empty where none of them is one."""
    flags = []
    for each in prediction.changes:
        flag = SETTINGS[each.name].flag if each.name in SETTINGS else None
        if flag is None:
            continue
        if isinstance(each.after, bool):
            flags.append(flag if each.after else flag.replace("--", "--no-", 1))
        else:
            flags.append(f"{flag} {value_text(each.after).replace(',', '')}")
    return " ".join(flags)


def clients_text(clients: Clients) -> str:
    """Returns how clients behave, in a few words."""
    if clients.kind == "closed":
        return f"clients wait for answers ({clients.num_in_flight} in flight)"
    return "requests arrive when they did"


def why_withheld(predicted: Predicted) -> str:
    """Returns why a number is not given."""
    if predicted.trust is Trust.NOT_MEASURED:
        return "for the record does not tell it and no replay can be checked against it"
    assert predicted.error is not None
    error = signed_percent(predicted.error)
    return f"for the replay is {error} off the record under the recorded settings"


def value_text(value: Any) -> str:
    """Returns a setting's value for people."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if _is_number(value) else value


def amount(quantity: Quantity, value: float | None) -> str:
    """Returns a quantity's value with its unit; a dash where it is not known."""
    if value is None:
        return "–"
    if quantity.unit != "s":
        return f"{round(value):,}"
    if value >= 100:
        return f"{value:,.0f} s"
    if value >= 0.1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


def band(quantity: Quantity, low: float | None, high: float | None) -> str:
    """Returns a range; its unit is written once where both ends have the same."""
    first, last = amount(quantity, low), amount(quantity, high)
    number, _, unit = first.partition(" ")
    return f"{number if unit and last.endswith(f' {unit}') else first} to {last}"


def _moved(each: Predicted) -> str:
    quantity = each.quantity
    return (
        f"{quantity.label} {amount(quantity, each.replayed)} → {amount(quantity, each.predicted)}"
    )


def _clear(prediction: Prediction, *, is_worse: bool) -> list[Predicted]:
    """Returns the times that clearly get worse (or better), the largest change first."""
    found = [prediction.of(name) for name in _PRICED]
    found = [each for each in found if each.is_clear and each.is_worse is is_worse]
    return sorted(found, key=lambda each: -abs(each.change or 0.0))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))

"""What the What-if page shows: one setting at many values, and how each quantity goes with it.

No Streamlit here; all numbers are `diagnose.replay`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from diagnose.finding import Action
from diagnose.replay.prediction import Predicted, Prediction, Replays, predict
from diagnose.replay.settable import SETTINGS, ChangeError, changed, parse_setting, value_now
from diagnose.replay.smallest import MAX_TRIED, values_to_try
from diagnose.replay.step_times import DECODES
from diagnose.replay.whatif_words import value_text
from diagnose.replay.workload import Workload
from engine.config_error import ConfigError

SCAN_REPLAYS = 3
"""Replays of each value of a course; the chosen one has as many as a prediction."""
CHARTED = {
    "num_preemptions": "in the recording",
    "longest_pause_p95": "in an answer, seconds",
    "ttft_p95": "after arrival, seconds",
    "output_tokens_per_second": "higher is better",
}
"""Quantities that have a chart, and what stands beside their names."""
SCANNED = tuple(
    name for name in SETTINGS if name not in ("max_num_active_seqs", "max_num_scheduled_tokens")
)
"""Settings that have values to try."""


@dataclass(frozen=True, slots=True)
class Course:
    """One setting at many values, the recorded one apart."""

    name: str
    now: Any
    predictions: tuple[Prediction, ...]

    @property
    def values(self) -> list[Any]:
        """The values in their order, the recorded one among them."""
        values = [_value(prediction) for prediction in self.predictions]
        return ordered([*values, self.now])

    @property
    def is_number(self) -> bool:
        """Whether its values have a place on a scale."""
        return all(_is_number(value) for value in self.values)


def ordered(values: list[Any]) -> list[Any]:
    """Returns values without repetition: numbers by size, others as they come."""
    distinct = list(dict.fromkeys(values))
    return sorted(distinct) if all(_is_number(value) for value in distinct) else distinct


def values_of(workload: Workload, name: str, before: Replays) -> list[Any]:
    """Returns the values of a setting that this engine could have, the recorded one apart."""
    peak = before.outcomes[0].largest[DECODES]
    tried = values_to_try(workload, name, peak)[:MAX_TRIED]
    return [value for value in tried if _is_possible(workload, name, value)]


def read_course(workload: Workload, name: str, before: Replays) -> Course:
    """Returns a setting's course, each value replayed as often as the recorded one was."""
    predictions = tuple(
        predict(workload, {name: value}, num_replays=len(before.outcomes), before=before)
        for value in values_of(workload, name, before)
    )
    return Course(name, value_now(workload, name), predictions)


def points_of(course: Course, quantity: str, chosen: Prediction) -> pd.DataFrame:
    """Returns `value`, `label`, `low`, `middle`, `high` of a quantity, a row a value.

    Values whose prediction is withheld have no row; the replay of the recorded one always has.
    """
    rows = []
    others = [each for each in course.predictions if _value(each) != _value(chosen)]
    for prediction in [*others, chosen] if _value(chosen) != course.now else others:
        each = prediction.of(quantity)
        if each.predicted is not None:
            rows.append(_point(_value(prediction), each.low, each.predicted, each.high))
    if course.predictions:
        each = course.predictions[0].of(quantity)
        if each.replayed is not None:
            rows.append(_point(course.now, each.replayed_low, each.replayed, each.replayed_high))
    frame = pd.DataFrame(rows, columns=["value", "label", "low", "middle", "high"])
    return frame.sort_values("value") if course.is_number else frame


def trust_rows(prediction: Prediction) -> list[Predicted]:
    """Returns the quantities that tell whether a replay can be trusted, in their order."""
    named = (*CHARTED, "num_tokens_recomputed")
    return [each for each in prediction.quantities if each.quantity.name in named]


def choice_of(text: str | None) -> tuple[str, Any] | None:
    """Returns the setting and the value of an address' `max_num_seqs:11`; None for anything else.

    It comes from outside: what cannot be read is as good as absent.
    """
    name, _, value = (text or "").partition(":")
    try:
        return parse_setting(f"{name}={value}")
    except ChangeError:
        return None


def address_of(name: str, value: Any) -> str:
    """Returns what `choice_of` reads."""
    return f"{name}:{value_text(value).replace(',', '')}"


def address_of_action(action: Action) -> str | None:
    """Returns the address' part that replays an action; None for one that no replay can change."""
    for name in SCANNED:
        if action.flag is not None and SETTINGS[name].flag == action.flag and action.new:
            return f"{name}:{action.new.replace(',', '')}"
    return None


def asked(choice: tuple[str, Any] | None, workload: Workload) -> Mapping[str, Any]:
    """Returns the change that an address asks for, if this engine could make it; else none."""
    if choice is None or choice[0] not in SCANNED or not _is_possible(workload, *choice):
        return {}
    return dict([choice])


def _point(value: Any, low: float | None, middle: float, high: float | None) -> dict[str, Any]:
    return {
        "value": value if _is_number(value) else value_text(value),
        "label": value_text(value),
        "low": middle if low is None else low,
        "middle": middle,
        "high": middle if high is None else high,
    }


def _value(prediction: Prediction) -> Any:
    return prediction.changes[0].after


def _is_possible(workload: Workload, name: str, value: Any) -> bool:
    try:
        changed(workload, {name: value})
    except (ConfigError, ChangeError):
        return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

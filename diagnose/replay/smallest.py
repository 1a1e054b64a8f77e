"""The smallest change that removes half, 80 %, all of the preemptions, for each setting.

Values are tried from the recorded one outwards, until one removes all, then some in between. The
count need not fall evenly on the way, so the answer is the smallest change that was *tried*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.replay.outcome import Outcome
from diagnose.replay.prediction import NUM_REPLAYS, Prediction, Replays, needs_of, predict
from diagnose.replay.settable import ChangeError, changed, value_now
from diagnose.replay.simulation import simulate
from diagnose.replay.step_times import DECODES
from diagnose.replay.workload import Workload
from engine.config_error import ConfigError

GOALS = (0.5, 0.8, 1.0)
"""Shares of the preemptions that are to go."""
SEARCHED = ("max_num_seqs", "num_gpu_blocks", "watermark")
"""Settings that are tried where nobody names others."""
MAX_TRIED = 14
REFINED = 4
"""Values that are tried between the last that does not reach a goal and the first that does."""
_POOL_FACTORS = (1.1, 1.25, 1.4, 1.6, 1.8, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 6.0, 8.0)
_WATERMARKS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3)
_FACTORS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A goal that a setting reaches: the value, what it takes, what it would do."""

    goal: float
    setting: str
    value: Any
    needs: str
    prediction: Prediction


def values_to_try(workload: Workload, name: str, peak: float | None = None) -> list[Any]:
    """Returns the values of a setting that a scan tries, from the recorded one outwards.

    Args:
        peak: most decoding requests of a step; fewer slots than that begin to matter.

    Raises:
        ChangeError: the setting has no order of values, or does not exist.
    """
    now = value_now(workload, name)
    match name:
        case "max_num_seqs":
            top = min(now, round(peak) + 1 if peak else now)
            return _spread(top - 1, max(1, top // 4))
        case "num_gpu_blocks":
            usable = workload.config.cache.num_usable_blocks
            return [round(usable * factor) + 1 for factor in _POOL_FACTORS]
        case "watermark":
            return [value for value in _WATERMARKS if value > now]
        case "max_num_batched_tokens":
            return [max(1, round(now * factor)) for factor in _FACTORS if factor != 1]
        case "long_prefill_token_threshold":
            return [n for n in (4096, 2048, 1024, 512, 256, 128, 64) if n != now]
        case "max_loras":
            return [n for n in range(1, 17) if n != now]
        case "num_speculative_tokens":
            return [n for n in range(9) if n != now]
        case "block_size":
            return [n for n in (8, 16, 32, 64, 128) if n != now]
        case "rate" | "connector_latency":
            return [now * factor for factor in _FACTORS if factor != 1]
        case "policy":
            return ["priority" if now == "fcfs" else "fcfs"]
        case "priorities":
            return ["equal"]
        case "max_num_active_seqs" | "max_num_scheduled_tokens":
            raise ChangeError(f"{name} is not scanned: name the values (--scan {name}=8,16,32)")
    return [not now]


def smallest_changes(
    workload: Workload,
    names: Sequence[str] = SEARCHED,
    *,
    num_replays: int = NUM_REPLAYS,
    before: Replays | None = None,
) -> list[Step]:
    """Returns, goal by goal, the smallest tried change of each setting that reaches it."""
    before = before or Replays.of(workload, num_replays)
    found: list[Step] = []
    for name in names:
        for goal, value in _reached(workload, name, before.outcomes[0]):
            prediction = predict(workload, {name: value}, num_replays=num_replays, before=before)
            needs = needs_of(workload, name, value)
            found.append(
                Step(goal=goal, setting=name, value=value, needs=needs, prediction=prediction)
            )
    return sorted(found, key=lambda step: step.goal)


def _reached(workload: Workload, name: str, first: Outcome) -> Iterator[tuple[float, Any]]:
    """Yields each goal with the smallest tried change that reaches it, one replay a value."""
    if not first.num_preemptions:
        return
    shares: dict[Any, float] = {}
    values = values_to_try(workload, name, first.largest[DECODES])[:MAX_TRIED]
    for value in values:
        left = _left(workload, name, value, first)
        if left is None:
            break
        shares[value] = left
        if left == 0.0:
            break
    for goal in GOALS:
        found = next((v for v in shares if shares[v] <= 1.0 - goal + 1e-9), None)
        if found is not None:
            yield goal, _closer(workload, name, first, goal, found, shares)


def _left(workload: Workload, name: str, value: Any, first: Outcome) -> float | None:
    """Returns the share of preemptions that is left; None where nothing would go on."""
    try:
        outcome = simulate(changed(workload, {name: value}))
    except ConfigError:
        return None
    if outcome.is_stuck:
        return None
    return outcome.num_preemptions / max(1, first.num_preemptions)


def _closer(
    workload: Workload,
    name: str,
    first: Outcome,
    goal: float,
    found: Any,
    shares: dict[Any, float],
) -> Any:
    """Returns a value nearer to the recorded one that reaches a goal too, if halving finds one."""
    now = value_now(workload, name)
    nearer = [v for v in shares if abs(v - now) < abs(found - now)]
    near = max(nearer, key=lambda v: abs(v - now), default=now)
    for _ in range(REFINED):
        middle = (near + found) / 2
        middle = round(middle) if isinstance(found, int) else round(middle, 4)
        if middle in (near, found):
            break
        left = _left(workload, name, middle, first)
        if left is not None and left <= 1.0 - goal + 1e-9:
            found = middle
        else:
            near = middle
    return found


def _spread(high: int, low: int) -> list[int]:
    """Returns whole numbers from `high` down to `low`, closer together the smaller they are."""
    if high < low:
        return []
    if high - low < MAX_TRIED:
        return list(range(high, low - 1, -1))
    ratio = (low / high) ** (1 / (MAX_TRIED - 1))
    return sorted({round(high * ratio**n) for n in range(MAX_TRIED)}, reverse=True)

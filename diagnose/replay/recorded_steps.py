"""The steps of a recorded run, as what step times are learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.reading import QueryLog, Scope, read_row
from diagnose.replay.rows import ReplayError
from diagnose.replay.step_times import MIN_STEPS, StepTimes, fit
from engine.config import EngineConfig

MAX_FITTED = 200_000
"""Of a longer stretch every n-th step is learned from."""
REMEDY = "record with `stepscope serve` or the vLLM plug-in, and keep --detail transitions or full"

_PRESENT = """
SELECT count(*) AS num_rows, coalesce(sum(num_repeats::BIGINT), 0)::BIGINT AS num_steps,
  coalesce(max(step::BIGINT + num_repeats::BIGINT) - min(step::BIGINT), 0)::BIGINT AS num_expected,
  min(step::BIGINT) AS first_step
FROM steps WHERE {where}
"""
_STEPS = """
WITH ended AS (
  SELECT step, count(*) AS num_ended FROM request_finishes WHERE {where} GROUP BY step
), told AS (
  SELECT *, lead(ts) OVER (ORDER BY step) AS next_ts, lag(updated_ts) OVER (ORDER BY step)
    AS previous_updated_ts, row_number() OVER (ORDER BY step) AS nth
  FROM steps WHERE {where}
)
SELECT
  s.ts - {start} AS ts, s.updated_ts - {start} AS updated_ts, s.next_ts - {start} AS next_ts,
  s.previous_updated_ts - {start} AS previous_updated_ts, s.num_repeats::BIGINT AS num_repeats,
  s.num_running::BIGINT + s.num_waiting::BIGINT - coalesce(e.num_ended, 0) AS num_left,
  s.num_scheduled_tokens::BIGINT AS num_tokens,
  s.num_decode_requests::BIGINT AS num_decodes,
  s.num_prefill_requests::BIGINT AS num_prefills,
  coalesce(s.num_draft_tokens, 0)::BIGINT AS num_drafts,
  {usable} - s.num_blocks_free_unhashed::BIGINT - coalesce(s.num_blocks_free_cached, 0)::BIGINT
    AS num_used,
  (coalesce(s.num_admitted, 0) + coalesce(s.num_resumed, 0))::BIGINT AS num_admissions,
  coalesce(s.num_encoder_embeds, 0)::BIGINT AS num_embeds,
  coalesce(s.num_external_tokens, 0)::BIGINT AS num_external
FROM told s LEFT JOIN ended e ON e.step = s.step
WHERE s.nth % {every} = 0 ORDER BY s.step
"""

_WAKE = """
WITH ended AS (
  SELECT step, count(*) AS num_ended FROM request_finishes WHERE {where} GROUP BY step
), told AS (
  SELECT s.step, s.ts, lag(s.num_running::BIGINT + s.num_waiting::BIGINT
    - coalesce(e.num_ended, 0)) OVER (ORDER BY s.step) AS num_left_before
  FROM (SELECT * FROM steps WHERE {where}) s LEFT JOIN ended e ON e.step = s.step
), arrived AS (
  SELECT step, min(ts) AS first_ts FROM request_arrivals WHERE {where} GROUP BY step
)
SELECT quantile_cont(s.ts - a.first_ts, 0.5) AS wake_ns
FROM told s JOIN arrived a ON a.step = s.step WHERE coalesce(s.num_left_before, 0) <= 0
"""

_Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps:
    """How many steps a stretch has, and how many of them the log lacks."""

    num_rows: int
    num_steps: int
    num_missing: int


def count_steps(log: QueryLog, scope: Scope) -> RecordedSteps:
    """Returns how complete the steps of a stretch are."""
    row = read_row(log, scope.fill(_PRESENT))
    return RecordedSteps(
        num_rows=row["num_rows"],
        num_steps=row["num_steps"],
        num_missing=row["num_expected"] - row["num_steps"],
    )


def learn_step_times(log: QueryLog, scope: Scope, config: EngineConfig, num_rows: int) -> StepTimes:
    """Returns the model of a stretch's step times.

    Raises:
        ReplayError: there are too few steps, or their times are not known.
    """
    every = max(1, -(-num_rows // MAX_FITTED))
    template = _STEPS.replace("{usable}", str(config.cache.num_usable_blocks))
    table = log.query(scope.fill(template.replace("{every}", str(every))))
    columns = {name: _floats(table.column(name)) for name in table.column_names}
    durations = _durations(columns, is_pipelined=config.scheduler.max_concurrent_batches > 1)
    tokens = columns["num_tokens"]
    usable = (tokens > 0) & (durations > 0) & np.isfinite(durations)
    if int(usable.sum()) < MIN_STEPS:
        raise ReplayError(
            f"{int(usable.sum())} steps of this stretch have a duration and {MIN_STEPS} are the "
            "least that step times can be learned from: choose a longer stretch"
        )
    empty = (
        durations[(tokens == 0) & (durations > 0)]
        / columns["num_repeats"][(tokens == 0) & (durations > 0)]
    )
    gaps = (columns["next_ts"] - columns["updated_ts"])[usable & (columns["num_left"] > 0)]
    gaps = gaps[np.isfinite(gaps)]
    return fit(
        _features(columns, config)[usable],
        durations[usable],
        columns["ts"][usable],
        gap_ns=max(0, int(np.median(gaps))) if len(gaps) else 0,
        wake_ns=max(0, int(read_row(log, scope.fill(_WAKE))["wake_ns"] or 0)),
        empty_ns=int(np.median(empty)) if len(empty) else 100_000,
    )


def _durations(columns: dict[str, _Column], *, is_pipelined: bool) -> _Column:
    """Returns what each step took, in ns: up to the next one, or to its end if none followed.

    In a pipeline a step takes from the end of the one before to its own.
    """
    own = columns["updated_ts"] - columns["ts"]
    if is_pipelined:
        before = np.fmax(columns["previous_updated_ts"], columns["ts"])
        in_turn: _Column = columns["updated_ts"] - before
        return in_turn
    follows = columns["num_left"] > 0
    whole = columns["next_ts"] - columns["ts"]
    return np.where(follows & np.isfinite(whole), whole, own)


def _features(columns: dict[str, _Column], config: EngineConfig) -> _Column:
    """Returns `[num_steps, NUM_FEATURES]`; what was not recorded is 0 in all of them."""
    known = {name: np.nan_to_num(values) for name, values in columns.items()}
    prefills, decodes = known["num_prefills"], known["num_decodes"]
    prefill_tokens = np.maximum(0, known["num_tokens"] - known["num_drafts"] - decodes)
    prefill_tokens = np.where(prefills > 0, prefill_tokens, 0)
    return np.column_stack(
        [
            np.ones(len(decodes)),
            decodes,
            prefill_tokens,
            prefills,
            prefill_tokens**2 / np.maximum(prefills, 1),
            known["num_used"] * config.cache.block_size,
            known["num_admissions"],
            known["num_drafts"],
            known["num_embeds"],
            known["num_external"],
        ]
    )


def _floats(column: Any) -> _Column:
    """Returns a column as floats, NaN for NULL."""
    values: _Column = column.cast("double").to_numpy()
    return values

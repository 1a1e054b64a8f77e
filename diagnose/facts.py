"""What a window holds of one engine: its settings and the plain numbers of its steps.

Read once and handed to every rule, so that they all judge the same numbers. Nothing is judged
here. `None` means that the source does not record it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from diagnose.kv_groups import Ints, KVGroup, blocks_of, most_tokens, read_groups
from diagnose.reading import QueryLog, Scope, read_row, read_rows
from telemetry.vocabulary import EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """An engine start and those of its settings that diagnosis knows."""

    engine: int
    started_ts: int | None = None
    host: str | None = None
    dp_rank: int | None = None
    role: str | None = None
    source: str | None = None
    version: str | None = None
    model: str | None = None
    device: str | None = None
    policy: str | None = None
    max_num_seqs: int | None = None
    max_num_active_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    num_usable_blocks: int | None = None
    num_kv_tokens: int | None = None
    has_null_block: bool | None = None
    reserve_full_prompt: bool | None = None
    enable_prefix_caching: bool | None = None
    watermark: float | None = None
    gpu_memory_utilization: float | None = None
    async_scheduling: bool | None = None
    kv_connector: str | None = None
    max_loras: int | None = None
    num_speculative_tokens: int | None = None
    settings: str | None = None

    @property
    def num_gpu_blocks(self) -> int | None:
        """The pool as `--num-gpu-blocks-override` counts it: with the null block."""
        if self.num_usable_blocks is None:
            return None
        return self.num_usable_blocks + (0 if self.has_null_block is False else 1)

    @property
    def slots(self) -> int | None:
        """Running requests up to which more are admitted."""
        limits = [x for x in (self.max_num_seqs, self.max_num_active_seqs) if x is not None]
        return min(limits) if limits else None

    @property
    def allows_oversize(self) -> bool:
        """Whether requests larger than the pool are let in on purpose (our own engine only)."""
        return bool(self.setting("allow_oversize"))

    def setting(self, *names: str) -> Any:
        """Returns the first of these that the whole configuration has; `None` without any."""
        try:
            known = json.loads(self.settings or "{}")
            return next((known[name] for name in names if name in known), None)
        except (ValueError, TypeError):
            return None

    def scheduler_setting(self, name: str) -> Any:
        """Returns a scheduler's setting of the whole configuration, nested or flat."""
        nested = self.setting("scheduler")
        return nested.get(name) if isinstance(nested, dict) else self.setting(name)

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """Groups of layers with block tables of their own; none where they are not known."""
        cache = self.setting("cache")
        ours = cache.get("groups") if isinstance(cache, dict) else None
        return read_groups(ours or self.setting("kv_cache_groups"), self.block_size)

    @property
    def pool_tokens(self) -> int | None:
        """Tokens of the longest request that the KV pool holds."""
        if self.num_usable_blocks is None or not self.kv_groups:
            return None
        return most_tokens(self.kv_groups, self.num_usable_blocks)

    def blocks_of(self, num_tokens: int) -> int | None:
        """Returns the KV blocks that so many tokens of a request take, over all groups."""
        return None if not self.kv_groups else int(blocks_of(self.kv_groups, np.array(num_tokens)))

    def blocks_of_each(self, num_tokens: Ints) -> Ints:
        """Returns the same for many requests; the tokens themselves where it is not known."""
        return blocks_of(self.kv_groups, num_tokens) if self.kv_groups else num_tokens

    def blocks_sql(self, num_tokens: str) -> str:
        """Returns the same as an SQL expression over one."""
        return " + ".join(group.blocks_sql(num_tokens) for group in self.kv_groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """Numbers of the steps of a window. Times in ns, blocks and requests as counts."""

    num_steps: int
    num_rows: int
    num_working_steps: int
    """Steps that scheduled a token or preempted."""
    num_steps_missing: int
    first_ts: int | None
    last_ts: int | None
    num_scheduled_tokens: int | None
    num_preempting_steps: int | None
    num_stuck_steps: int | None
    """Steps that left requests waiting, nobody running and scheduled nothing."""
    max_running: int | None
    max_waiting: int | None
    num_steps_waiting: int | None
    min_free_blocks: int | None
    last_free_blocks: int | None
    max_held_by_waiting: int | None
    step_p50_ns: int | None
    step_p99_ns: int | None
    step_max_ns: int | None
    schedule_ns: int | None
    busy_ns: int | None
    last_running: int | None
    last_waiting: int | None
    token_budget_recorded: bool

    @property
    def missing_ratio(self) -> float:
        """Share of the window's steps that no row tells of."""
        total = self.num_steps + self.num_steps_missing
        return self.num_steps_missing / total if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuality:
    """How far the record of a window can be trusted."""

    num_records_dropped: int
    dropped_regions: tuple[str, ...]
    num_recorder_errors: int
    died_step: int | None
    """The step in which the engine ended without saying goodbye; `None` if it did not."""
    stopped_ts: int | None
    has_received_times: bool
    """Whether it is recorded when requests reached the server."""
    has_grammars: bool
    has_encoder_items: bool

    def sentences(self, steps: StepFacts) -> tuple[str, ...]:
        """Returns what a reader must know before believing a count; empty where all is well."""
        said = []
        if steps.num_steps_missing:
            share = f"{100 * steps.missing_ratio:.1f} %"
            said.append(f"{share} of steps missing, counts are lower bounds")
        if self.num_records_dropped:
            regions = ", ".join(self.dropped_regions) or "the ring"
            said.append(f"{self.num_records_dropped:,} records dropped ({regions})")
        if self.num_recorder_errors:
            said.append(f"{self.num_recorder_errors:,} recorder errors")
        if self.died_step is not None:
            said.append(f"the engine stopped without saying goodbye, in step {self.died_step:,}")
        return tuple(said)


_STEP_QUANTILES = "(approx_quantile(updated_ts - ts, [0.5, 0.99]) FILTER (num_repeats = 1))"
"""Both in one pass over the steps: written alike, they are one aggregate."""

STEPS_SQL = """
SELECT coalesce(sum(num_repeats), 0)::BIGINT AS num_steps,
       count(*) AS num_rows,
       count(*) FILTER (num_scheduled_tokens > 0 OR num_preempted > 0) AS num_working_steps,
       min(step)::BIGINT AS first_step,
       max(step + num_repeats - 1)::BIGINT AS last_step,
       min(ts) AS first_ts,
       max(coalesce(updated_ts, ts)) AS last_ts,
       sum(num_scheduled_tokens)::BIGINT AS num_scheduled_tokens,
       CASE WHEN count(num_preempted) > 0 THEN count(*) FILTER (num_preempted > 0) END
           AS num_preempting_steps,
       CASE WHEN count(num_running) > 0 THEN coalesce(sum(num_repeats) FILTER (
           num_running = 0 AND num_waiting > 0 AND num_scheduled_tokens = 0
       ), 0)::BIGINT END AS num_stuck_steps,
       max(num_running) AS max_running,
       max(num_waiting) AS max_waiting,
       CASE WHEN count(num_waiting) > 0
           THEN coalesce(sum(num_repeats) FILTER (num_waiting > 0), 0)::BIGINT
       END AS num_steps_waiting,
       min(num_blocks_free_unhashed + num_blocks_free_cached)::BIGINT AS min_free_blocks,
       arg_max(num_blocks_free_unhashed + num_blocks_free_cached, ts)::BIGINT AS last_free_blocks,
       max(num_blocks_waiting) AS max_held_by_waiting,
       {step_quantiles}[1]::BIGINT AS step_p50_ns,
       {step_quantiles}[2]::BIGINT AS step_p99_ns,
       (max(updated_ts - ts) FILTER (num_repeats = 1))::BIGINT AS step_max_ns,
       sum(schedule_ns)::BIGINT AS schedule_ns,
       sum(updated_ts - ts)::BIGINT AS busy_ns,
       arg_max(num_running, ts) AS last_running,
       arg_max(num_waiting, ts) AS last_waiting,
       count(token_budget) > 0 AS token_budget_recorded
FROM steps WHERE {where}
""".replace("{step_quantiles}", _STEP_QUANTILES)

QUALITY_SQL = f"""
SELECT coalesce(sum(last_lost - first_lost + 1)
           FILTER (kind = {EventKind.records_dropped:d}), 0)::BIGINT AS dropped,
       list(DISTINCT region) FILTER (kind = {EventKind.records_dropped:d}) AS regions,
       (max(step) FILTER (kind = {EventKind.engine_died:d}))::BIGINT AS died_step,
       max(ts) FILTER (kind IN ({EventKind.engine_died:d}, {EventKind.engine_stopped:d},
                                {EventKind.engine_failed:d}))
           AS stopped_ts
FROM request_events WHERE {{where}}
"""

ARRIVALS_SQL = """
SELECT count(received_ts) > 0 AS has_received_times, count(grammar_key) > 0 AS has_grammars,
       (SELECT count(*) > 0 FROM encoder_items WHERE {where}) AS has_encoder_items
FROM request_arrivals WHERE {where}
"""

ERRORS_SQL = "SELECT max(num_recorder_errors) AS errors FROM heartbeats WHERE {where}"


def read_settings(log: QueryLog, engine: int) -> EngineSettings:
    """Returns an engine's newest description; without one, only its number is known."""
    names = ", ".join(f.name for f in fields(EngineSettings))
    rows = read_rows(
        log, f"SELECT {names} FROM engines WHERE engine = {engine} ORDER BY started_ts NULLS FIRST"
    )
    return EngineSettings(**rows[-1]) if rows else EngineSettings(engine=engine)


def read_step_facts(log: QueryLog, scope: Scope, *, saw_start: bool) -> StepFacts:
    """Returns the numbers of a window's steps.

    With `saw_start` the engine started in the window, so steps count as missing from step 0 on.
    """
    row: dict[str, Any] = read_row(log, scope.fill(STEPS_SQL))
    first, last = row.pop("first_step"), row.pop("last_step")
    missing = 0
    if first is not None:
        expected = last - (0 if saw_start else first) + 1
        missing = max(0, expected - row["num_steps"])
    return StepFacts(num_steps_missing=missing, **row)


def read_quality(log: QueryLog, scope: Scope) -> RecordQuality:
    """Returns what is known of records lost in a window."""
    events = read_row(log, scope.fill(QUALITY_SQL))
    errors = read_row(log, scope.fill(ERRORS_SQL))["errors"]
    return RecordQuality(
        num_records_dropped=events["dropped"],
        dropped_regions=tuple(sorted(r for r in events["regions"] or () if r)),
        num_recorder_errors=errors or 0,
        died_step=events["died_step"],
        stopped_ts=events["stopped_ts"],
        **read_row(log, scope.fill(ARRIVALS_SQL)),
    )

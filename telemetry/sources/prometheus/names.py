"""What a number is called: one column, and the names it has had in engines and their versions.

Samples keep the name that the page spells. This table says which names mean the same, newest first;
`metric_intervals` is built from it. Where a page has several of them (Ray exports each counter with
and without `_total`), the first one counts: they are one number, never to be added.

vLLM's names are those of 0.32 and, where they differ, of the versions named. Ray spells the prefix
`ray_vllm_`; whatever passed through something that knows no colon has `vllm_` or `sglang_`.

What is not here, and why: `sglang:num_retracted_reqs` is no counter (it holds those since the last
line of the log, then starts over); `sglang:prompt_tokens_total` and `generation_tokens_total` count
a request when it *ends*, so a long one would look stuck; the ratios `sglang:cache_hit_rate` and
`vllm:gpu_prefix_cache_hit_rate` have no numbers of tokens behind them.

Source: `vllm/v1/metrics/loggers.py`, SGLang's `metrics_collector.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["gauge", "counter", "rate", "count"]

VLLM_PREFIXES = ("vllm:", "ray_vllm_", "ray_vllm:", "vllm_")
SGLANG_PREFIXES = ("sglang:", "sglang_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A column of `metric_intervals`, and where it is found.

    Several samples of one name that differ in other labels (reasons, sources) are added.
    """

    column: str
    kind: Kind
    vllm: tuple[str, ...] = ()
    """Names without prefix and without `_total`, newest first."""
    sglang: tuple[str, ...] = ()
    vllm_label: tuple[str, str] | None = None
    """The label and value that vLLM's samples must have."""
    sglang_label: tuple[str, str] | None = None
    others: tuple[str, ...] = ()
    """Full names that have no prefix; a page says such a thing once, for all its engines: whoever
    reads it stores it for each of them."""
    log: tuple[str, ...] = ()
    """Names of the values of a log's lines. Of a counter they are rates a second (`..throughput`),
    or counts since the line before."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every full name, the one that counts first."""
        return (
            tuple(
                prefix + name + suffix
                for prefixes, names in ((VLLM_PREFIXES, self.vllm), (SGLANG_PREFIXES, self.sglang))
                for name in names
                for suffix in (("_total", "") if self.kind == "counter" else ("",))
                for prefix in prefixes
            )
            + self.others
            + self.log
        )


SERIES: tuple[Series, ...] = (
    Series(
        column="num_running", kind="gauge", vllm=("num_requests_running",),
        sglang=("num_running_reqs",), log=("log:running",),
    ),
    Series(
        column="num_waiting", kind="gauge", vllm=("num_requests_waiting",),
        sglang=("num_queue_reqs",), log=("log:waiting", "log:pending"),
    ),
    Series(
        column="num_waiting_capacity", kind="gauge", vllm=("num_requests_waiting_by_reason",),
        vllm_label=("reason", "capacity"),
    ),
    Series(
        column="num_waiting_deferred", kind="gauge", vllm=("num_requests_waiting_by_reason",),
        vllm_label=("reason", "deferred"),
        log=("log:deferred",),
    ),
    Series(
        column="kv_cache_usage_ratio", kind="gauge",
        vllm=("kv_cache_usage_perc", "gpu_cache_usage_perc"),  # the second up to 0.10
        sglang=("token_usage",), log=("log:kv_cache_usage",),
    ),
    Series(
        column="num_prompt_tokens", kind="counter", vllm=("prompt_tokens",),
        sglang=("realtime_tokens",), sglang_label=("mode", "prefill_compute"),
        log=("log:avg_prompt_throughput",),
    ),
    Series(
        column="num_generation_tokens", kind="counter", vllm=("generation_tokens",),
        sglang=("realtime_tokens",), sglang_label=("mode", "decode"),
        log=("log:avg_generation_throughput",),
    ),
    Series(
        column="num_preemptions", kind="counter", vllm=("num_preemptions",),
        sglang=("num_retracted_requests",),
        log=("log:preemptions",),
    ),
    Series(
        column="num_finished", kind="counter", vllm=("request_success",), sglang=("num_requests",),
    ),
    Series(
        column="num_prefix_queries", kind="counter",
        vllm=("prefix_cache_queries", "gpu_prefix_cache_queries"),  # the second up to 0.9
        sglang=("prompt_tokens",),
    ),
    Series(
        column="num_prefix_hits", kind="counter",
        vllm=("prefix_cache_hits", "gpu_prefix_cache_hits"),  # the second up to 0.9
        sglang=("cached_tokens",),
    ),
    Series(
        column="num_failed_transfers", kind="counter",
        vllm=("nixl_num_failed_transfers", "hf3fs_num_failed_load"),
        sglang=("num_transfer_failed_reqs",),
        log=("log:kv_transfer_num_failed_transfers",),
    ),
    Series(column="num_expired_requests", kind="counter", vllm=("nixl_num_kv_expired_reqs",)),
    Series(
        column="num_kv_loads_in_progress", kind="gauge", vllm=("num_requests_kv_fetch_by_stage",),
        vllm_label=("stage", "in_progress"),  # from 0.32
        log=("log:kv_fetch_in_progress",),
    ),
    Series(
        column="num_kv_loads_completed", kind="gauge", vllm=("num_requests_kv_fetch_by_stage",),
        vllm_label=("stage", "completed_waiting"),  # from 0.32
        log=("log:kv_fetch_completed_waiting",),
    ),
    Series(
        column="num_drafted_tokens", kind="counter", vllm=("spec_decode_num_draft_tokens",),
        log=("log:spec_drafted_tokens",),
    ),
    Series(
        column="num_accepted_tokens", kind="counter", vllm=("spec_decode_num_accepted_tokens",),
        log=("log:spec_accepted_tokens",),
    ),
    Series(
        column="process_started", kind="gauge", others=("process_start_time_seconds",),
    ),
)  # fmt: skip

CANONICAL: dict[str, tuple[str, ...]] = {series.column: series.spellings for series in SERIES}
"""Column of `metric_intervals` -> names of samples, the one that counts first."""

LABELS: dict[str, dict[str, tuple[str, str]]] = {
    series.column: {
        name: label
        for name in series.spellings
        if (label := series.sglang_label if name.startswith("sglang") else series.vllm_label)
    }
    for series in SERIES
    if series.vllm_label or series.sglang_label
}
"""Column -> name -> the label and value that a sample of it must have, where one must."""

KINDS: dict[str, Kind] = {series.column: series.kind for series in SERIES}
"""Column -> whether its samples are states, or counters of which the increase is taken."""


def _kind_of(series: Series, name: str) -> Kind:
    if series.kind == "gauge" or name not in series.log:
        return series.kind
    return "rate" if name.endswith("throughput") else "count"


NAMES: tuple[tuple[str, str, Kind, int, tuple[str, str] | None], ...] = tuple(
    (
        name,
        series.column,
        _kind_of(series, name),
        rank,
        LABELS.get(series.column, {}).get(name),
    )
    for series in SERIES
    for rank, name in enumerate(series.spellings)
)
"""Name, column, kind, rank (0 counts first) and label of every spelling: the macro `metric_names`
gives them to SQL."""

HISTOGRAMS: dict[str, tuple[str, ...]] = {
    column: (
        *(prefix + name for name in vllm for prefix in VLLM_PREFIXES),
        *(prefix + name for name in sglang for prefix in SGLANG_PREFIXES),
    )
    for column, vllm, sglang in (
        ("ttft", ("time_to_first_token_seconds",), ("time_to_first_token_seconds",)),
        (
            "inter_token_latency",
            ("inter_token_latency_seconds", "time_per_output_token_seconds"),  # up to 0.10
            ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        ),
        ("e2e", ("e2e_request_latency_seconds",), ("e2e_request_latency_seconds",)),
        (
            "queue_time",
            ("request_queue_time_seconds", "time_in_queue_requests"),  # the second in V0
            ("queue_time_seconds",),
        ),
        ("prefill_time", ("request_prefill_time_seconds",), ()),
        ("decode_time", ("request_decode_time_seconds",), ()),
        ("iteration_tokens", ("iteration_tokens_total",), ()),
        ("request_preemptions", ("request_num_preemptions",), ()),
        ("prompt_tokens", ("request_prompt_tokens",), ("prompt_tokens_histogram",)),
        ("generation_tokens", ("request_generation_tokens",), ("generation_tokens_histogram",)),
    )
}
"""What a histogram measures -> names of its family; samples add `_bucket`, `_sum`, `_count`."""

"""What a series is: a name and labels; of which engine it tells; whether it is kept at all.

Kept is what an engine says of itself, and of the process that answers only when it began, its
memory and its processor time. `*_created` is left out: the time at which a counter was made is when
the process began. Of SGLang's tensor- and pipeline-parallel ranks, which all say the same, the
first is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from telemetry.sources.prometheus.names import SGLANG_PREFIXES, VLLM_PREFIXES

ENGINE_PREFIXES = (*VLLM_PREFIXES, *SGLANG_PREFIXES, "lmcache:", "lmcache_")
SERVER_METRICS = (
    "up",
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
)
"""Metrics of the process that serves the page, not of one engine in it."""

MOST_SERIES = 50_000
"""Series that are remembered by whoever does; then all are forgotten and read anew."""

_SAME_EVERYWHERE = ("tp_rank", "pp_rank", "moe_ep_rank")
_REPLICA = ("ReplicaId", "WorkerId")
"""Labels by which Ray tells engines apart; each of them calls itself engine 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A series that is kept. One object a series, compared by identity."""

    metric: str
    labels: Mapping[str, str]
    labels_json: str
    """The same as JSON with sorted keys, as `samples` has it."""
    target: str | None
    """What was scraped, where the labels say so: those of a Prometheus server."""
    rank: str | None
    """The engine among those of its target; None where the labels name none."""

    @property
    def is_of_server(self) -> bool:
        """Whether it tells of the process, hence of all its engines."""
        return self.metric in SERVER_METRICS


def series_of(metric: str, labels: Mapping[str, str]) -> Series | None:
    """Returns a series; None for one that is not kept."""
    if not _is_kept(metric, labels):
        return None
    return Series(
        metric=metric,
        labels=labels,
        labels_json=json.dumps(labels, sort_keys=True, separators=(",", ":")),
        target=labels.get("instance") or None,
        rank=_rank(metric, labels),
    )


def is_of_engine(metric: str) -> bool:
    """Returns whether a metric is an engine's own, by its name."""
    return metric.startswith(ENGINE_PREFIXES)


def _is_kept(metric: str, labels: Mapping[str, str]) -> bool:
    if metric in SERVER_METRICS:
        return True
    if not is_of_engine(metric) or metric.endswith("_created"):
        return False
    return not (
        metric.startswith(SGLANG_PREFIXES)
        and any(labels.get(name, "0") not in ("0", "") for name in _SAME_EVERYWHERE)
    )


def _rank(metric: str, labels: Mapping[str, str]) -> str | None:
    if metric in SERVER_METRICS:
        return None
    rank = labels.get("engine") or labels.get("dp_rank") or None
    if metric.startswith("ray_"):
        replica = next((labels[name] for name in _REPLICA if labels.get(name)), None)
        if replica is not None:
            return f"{replica}/{rank or 0}"
    return rank

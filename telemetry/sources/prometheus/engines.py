"""The engines behind pages: which number each has, and what the pages say of it.

An engine is told apart by its target (host and port, or the directory of its pages) and the label
`engine`: a data-parallel rank, or one of Ray's replicas. Its number stays over restarts.

Invariants:
    A series without that label is of the whole target: it is stored for each of its engines. Only
    SGLang's are not, which count requests and tokens of all ranks together: where there are several
    ranks, these belong to an engine of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from telemetry.errors import ImportRefused
from telemetry.records import EngineRow
from telemetry.sources.identity import engine_number
from telemetry.sources.prometheus import flags as launch
from telemetry.sources.prometheus.names import SGLANG_PREFIXES
from telemetry.sources.prometheus.series import MOST_SERIES, Series
from telemetry.sources.vllm.settings import PRIVATE

SOURCE = "prometheus"
ONLY_RANK = "0"
"""The rank of an engine whose pages name none."""
ALL_RANKS = ""
MOST_ENGINES = 10_000
"""Engines of one import, or one address: beyond that the labels are not what they seem."""
MOST_TARGETS = 50_000
"""The same of targets, those of other processes included."""

_INFO = "cache_config_info"
_STARTED = "process_start_time_seconds"
_LATEST_SECONDS = 9e9
"""Beyond what a column of nanoseconds holds."""
_SGLANG_NUMBERS = {
    "max_total_num_tokens": "num_kv_tokens",
    "num_pages": "num_usable_blocks",
    "page_size": "block_size",
    "context_len": "max_model_len",
}
"""Gauges of SGLang that are settings, and their columns."""


@dataclass(slots=True)
class Target:
    """What is scraped: one address, with the engines behind it."""

    name: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    ranks: set[str] = field(default_factory=set)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Columns of `engines` by rank; those under `ALL_RANKS` hold for each."""
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """Labels of the cache's settings, by rank."""
    started_ns: int | None = None
    """When the process began that answers now."""

    def ranks_of(self, series: Series) -> tuple[str, ...]:
        """Returns the engines that a series tells of."""
        if series.rank is not None:
            return (series.rank,)
        if len(self.ranks) > 1 and series.metric.startswith(SGLANG_PREFIXES):
            return (ALL_RANKS,)
        return tuple(sorted(self.ranks)) or (ONLY_RANK,)

    @property
    def known_ranks(self) -> list[str]:
        """The engines that something was said of."""
        is_apart = len(self.ranks) > 1 and self.facts.get(ALL_RANKS, {}).get("source") == "sglang"
        ranks = self.ranks or ({ONLY_RANK} if self.facts else set())
        return sorted({*ranks, ALL_RANKS} if is_apart else ranks)

    def row(self, rank: str, first_ns: int) -> EngineRow:
        """Returns what is known of an engine; what its pages say goes before its flags."""
        found = launch.columns(self.flags) | _of_cache(self.settings_of(rank))
        found |= self.facts.get(ALL_RANKS, {}) | self.facts.get(rank, {})
        found |= _pool(self.flags, self.settings_of(rank), found)
        settings = dict(self.settings_of(rank)) | launch.public(self.flags)
        return EngineRow(
            **{
                "source": "vllm",
                **found,
                "started_ts": self.started_ns or first_ns,
                "dp_rank": launch.count(rank.rpartition("/")[2]) if rank else None,
                "api_url": self.name,
                "settings": json.dumps(settings, sort_keys=True) if settings else None,
            }
        )

    def settings_of(self, rank: str) -> Mapping[str, str]:
        """Returns the labels of the cache's settings of an engine."""
        return self.settings.get(rank) or self.settings.get(ALL_RANKS) or {}


class Engines:
    """The engines behind one import, or one address that is scraped."""

    def __init__(self, name: str, flags: Mapping[str, Any] | None = None) -> None:
        """`name` is the target of series whose labels name none, `flags` its launch flags."""
        self._default = Target(name, flags or {})
        self._targets: dict[str, Target] = {name: self._default}
        self._seen: set[Series] = set()
        self._numbers: dict[Series, tuple[int, ...]] = {}
        self._num_engines = 0
        self._first_ns: int | None = None
        self.num_changes = 0
        """Grows whenever something new has been learnt."""

    def target_of(self, series: Series) -> Target:
        """Returns the target that a series was scraped from.

        Raises:
            ImportRefused: There are too many for all of them to be engines.
        """
        if series.target is None:
            return self._default
        if series.target not in self._targets:
            if len(self._targets) >= MOST_TARGETS:
                raise self._too_many("targets", MOST_TARGETS)
            self._targets[series.target] = Target(series.target, self._default.flags)
        return self._targets[series.target]

    def learn(self, series: Series, value: float | None) -> None:
        """Takes note of what a sample says of its engine, if it does.

        Without a value only of what its labels say: it may come again with one.
        """
        if series.metric == _STARTED:
            self._learn_start(self.target_of(series), value)
        elif series not in self._seen:
            self._forget_if_many()
            if value is not None:
                self._seen.add(series)
            self.num_changes += 1
            if not series.is_of_server:
                target = self.target_of(series)
                if series.rank is not None and series.rank not in target.ranks:
                    self._add_rank(target, series.rank)
                _learn(target, series, value)

    def _learn_start(self, target: Target, value: float | None) -> None:
        if value is None or not 0 < value < _LATEST_SECONDS:
            return
        started_ns = round(value * 1e9)
        if target.started_ns != started_ns:
            target.started_ns = started_ns
            self.num_changes += 1

    def _forget_if_many(self) -> None:
        if len(self._seen) >= MOST_SERIES:
            self._seen.clear()
            self._numbers.clear()

    def _add_rank(self, target: Target, rank: str) -> None:
        self._num_engines += 1
        if self._num_engines > MOST_ENGINES:
            raise self._too_many("engines", MOST_ENGINES)
        target.ranks.add(rank)
        self._numbers.clear()

    def _too_many(self, what: str, most: int) -> ImportRefused:
        return ImportRefused(
            f"the labels of {self._default.name} name more than {most:,} {what}: is `engine` or "
            "`instance` something else there?"
        )

    def numbers(self, series: Series) -> tuple[int, ...]:
        """Returns the engines that a series tells of."""
        found = self._numbers.get(series)
        if found is None:
            target = self.target_of(series)
            found = tuple(number_of(target.name, rank) for rank in target.ranks_of(series))
            self._numbers[series] = found
        return found

    def all_numbers(self) -> list[int]:
        """Returns the engines that are known; without any, the one that an address is taken for."""
        known = [
            number_of(target.name, rank)
            for target in self._targets.values()
            for rank in target.known_ranks
        ]
        return known or [number_of(self._default.name, ONLY_RANK)]

    def has_engine(self, series: Series) -> bool:
        """Returns whether there is an engine at the series' target, as far as is known."""
        return bool(self.target_of(series).known_ranks)

    def rows(self, ts: int) -> dict[int, EngineRow]:
        """Returns what is known of each engine. `ts` is the time of the page that was just read.

        An engine that does not say when it began did so when the first page was read, or before.
        """
        self._first_ns = ts if self._first_ns is None else min(ts, self._first_ns)
        return {
            number_of(target.name, rank): target.row(rank, self._first_ns)
            for target in self._targets.values()
            for rank in target.known_ranks
        }


def number_of(target: str, rank: str) -> int:
    """Returns the number of an engine."""
    return engine_number(SOURCE, target, rank)


def _learn(target: Target, series: Series, value: float | None) -> None:
    rank = series.rank or ALL_RANKS
    facts = target.facts.setdefault(rank, {})
    if model := series.labels.get("model_name"):
        facts.setdefault("model", model[:200])
    if series.metric.startswith(SGLANG_PREFIXES):
        facts["source"] = "sglang"
        name = series.metric[len(SGLANG_PREFIXES[0]) :]
        if name in _SGLANG_NUMBERS and (known := launch.count(value)) is not None:
            facts[_SGLANG_NUMBERS[name]] = known
    if series.metric.endswith(_INFO):
        target.settings[rank] = {
            label: text
            for label, text in series.labels.items()
            if text != "None" and label not in _NOT_SETTINGS and not PRIVATE.search(label)
        }


_NOT_SETTINGS = frozenset({"engine", "model_name", "instance", "job"})


def _of_cache(labels: Mapping[str, str]) -> dict[str, Any]:
    """Returns the columns of `engines` that the labels of `cache_config_info` fill."""
    found = {
        "block_size": launch.count(labels.get("block_size")),
        "enable_prefix_caching": launch.flag(labels.get("enable_prefix_caching")),
        "gpu_memory_utilization": launch.number(labels.get("gpu_memory_utilization")),
        "num_kv_tokens": launch.count(labels.get("kv_cache_size_tokens")),
        "memory_kv_bytes": launch.count(labels.get("kv_cache_memory_bytes")),
    }
    return {column: value for column, value in found.items() if value is not None}


def _pool(
    flags: Mapping[str, Any], labels: Mapping[str, str], found: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the KV blocks that can be handed out: vLLM's count holds one that never is."""
    counted = (
        launch.count(labels.get("num_gpu_blocks"))
        or launch.count(flags.get("num_gpu_blocks"))
        or launch.count(flags.get("num_gpu_blocks_override"))
    )
    if not counted or found.get("source") == "sglang":
        return {}
    return {"num_usable_blocks": counted - 1, "has_null_block": True}

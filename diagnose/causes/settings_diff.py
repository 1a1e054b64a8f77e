"""Which settings of an engine differ between two of its starts: every one that is recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from diagnose.facts import EngineSettings

OF_A_START = frozenset(
    {
        *("engine", "started_ts", "host", "dp_rank", "source", "settings", "device"),
        *("num_kv_tokens", "has_null_block"),
    }
)
"""Columns that tell one start from another, or follow from others, and are no settings."""
ALIASES = {"reserve_full_prompt": "scheduler_reserve_full_isl"}
"""Columns with a name of their own, and the flag that they hold."""
POOL = frozenset({"num_gpu_blocks", "num_usable_blocks", "num_gpu_blocks_override"})
"""Names under which the size of the pool stands: a candidate of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSetting:
    """A setting that is not what it was; `None` is not set, or not told."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.old)} -> {_shown(self.new)}"


def changed_settings(old: EngineSettings, new: EngineSettings) -> tuple[ChangedSetting, ...]:
    """Returns every setting that differs, the size of the pool apart, by name."""
    before, after = _flat(old), _flat(new)
    return tuple(
        ChangedSetting(name=name, old=before.get(name), new=after.get(name))
        for name in sorted(before.keys() | after.keys())
        if name not in POOL and before.get(name) != after.get(name)
    )


def _flat(settings: EngineSettings) -> dict[str, Any]:
    """Returns all settings of a start by their own names; the whole configuration wins."""
    columns = {f.name: getattr(settings, f.name) for f in fields(settings)}
    known = {
        ALIASES.get(name, name): value
        for name, value in columns.items()
        if name not in OF_A_START and value is not None
    }
    try:
        whole = json.loads(settings.settings or "{}")
    except ValueError:
        whole = {}
    return known | (_leaves(whole) if isinstance(whole, dict) else {})


def _leaves(tree: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _leaves(value) if isinstance(value, dict) else {name: value}
    return {name: value for name, value in found.items() if value is not None}


def _shown(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 24 else text[:23] + "…"

"""An engine's configuration, made again of what its log says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from engine.config import (
    CacheConfig,
    EncoderConfig,
    EngineConfig,
    KVConnectorConfig,
    KVGroupConfig,
    LoRAConfig,
    SchedulerConfig,
    SpeculationConfig,
)

_Part = TypeVar("_Part")

PLUGIN_PART = "stepscope"
"""What the plug-in says of itself, in the settings of a vLLM and in no others."""


def config_from(settings: str) -> EngineConfig:
    """Returns the configuration that `EngineConfig.to_json` wrote, or vLLM's plug-in.

    Settings that this version does not know are passed over; those that were not written have
    their defaults.

    Raises:
        ConfigError: a value cannot be used.
    """
    found: Mapping[str, Any] = json.loads(settings)
    if PLUGIN_PART in found:
        found = from_vllm(found)
    cache = dict(found.get("cache") or {})
    cache["groups"] = tuple(_part(KVGroupConfig, group) for group in cache.get("groups", ()))
    encoder, connector = found.get("encoder"), found.get("kv_connector")
    lora = found.get("lora")
    return EngineConfig(
        kv_connector=None if connector is None else _part(KVConnectorConfig, connector),
        lora=None if lora is None else _part(LoRAConfig, lora),
        encoder=None if encoder is None else _part(EncoderConfig, encoder),
        speculation=_part(SpeculationConfig, found.get("speculation") or {}),
        scheduler=_part(SchedulerConfig, found.get("scheduler") or {}),
        cache=_part(CacheConfig, cache),
        allow_oversize=bool(found.get("allow_oversize", False)),
    )


def from_vllm(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns vLLM's settings where `EngineConfig.to_json` would have put them.

    The scheduler's and the cache's have the same names in both.
    """
    lora = found.get("lora") or {}
    return {
        "scheduler": {**(found.get("scheduler") or {}), "max_loras": lora.get("max_loras")},
        "cache": found.get("cache"),
        "kv_connector": _connector_of(found.get("kv_transfer")),
    }


def _connector_of(transfer: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if transfer is None:
        return None
    names = {"role": "kv_role", "load_failure_policy": "kv_load_failure_policy"}
    return {ours: transfer[theirs] for ours, theirs in names.items() if transfer.get(theirs)}


def without_deadlines(config: EngineConfig) -> EngineConfig:
    """Returns the configuration without time-outs: a replay knows from the log what timed out."""
    connector = config.kv_connector
    if connector is None:
        return config
    patient = replace(
        connector, load_timeout_seconds=None, ack_timeout_seconds=None, lease_seconds=None
    )
    return replace(config, kv_connector=patient)


def _part(cls: type[_Part], values: Mapping[str, Any]) -> _Part:
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in values.items() if name in known})

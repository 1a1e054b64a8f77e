"""Settings of an engine as keywords, under vLLM's names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from engine.connectors.settings import KVTransferConfig
from engine.lora.module_spec import parse_module
from engine.settings import EngineSettings
from engine.speculative_settings import parse_speculative_config


def read_settings(
    model: EngineSettings | Path | str | None, flags: Mapping[str, Any]
) -> EngineSettings:
    """Returns the settings of an engine.

    Raises:
        ConfigError: a setting cannot be used.
        TypeError: a flag is none.
    """
    if isinstance(model, EngineSettings):
        return replace(model, **flags)
    known = [field.name for field in fields(EngineSettings) if field.name != "model"]
    unknown = flags.keys() - set(known)
    if unknown:
        raise TypeError(
            f"LLM() has no flag {sorted(unknown)[0]!r}: it has those of `stepscope serve`, spelled "
            f"like {', '.join(known[5:8])}"
        )
    read = {name: _read_flag(name, value) for name, value in flags.items()}
    return EngineSettings(model=None if model is None else Path(model), **read)


def _read_flag(name: str, value: Any) -> Any:
    """Returns a flag's value, which may come as the JSON that the command line takes."""
    as_text = json.dumps(value) if isinstance(value, Mapping) else value
    if name == "lora_modules":
        pairs = value.items() if isinstance(value, Mapping) else ()
        texts = [f"{adapter}={path}" for adapter, path in pairs] or value
        return [parse_module(each) if isinstance(each, str) else each for each in texts]
    if isinstance(as_text, str) and name == "kv_transfer_config":
        return KVTransferConfig.parse(as_text)
    if isinstance(as_text, str) and name == "speculative_config":
        return parse_speculative_config(as_text)
    return value

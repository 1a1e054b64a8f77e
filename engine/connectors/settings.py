"""What `--kv-transfer-config` says: which connector, which way, and its own settings.

The names are vLLM's where it has them. Nothing that is not known is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from engine.config import ConfigError, KVConnectorConfig

ConnectorName = Literal["HostMemoryConnector", "SharedDirectoryConnector"]
Role = Literal["kv_producer", "kv_consumer", "kv_both"]
FailurePolicy = Literal["recompute", "fail"]

DEFAULT_HOST_BYTES = 1 << 30
"""Host memory for KV blocks where it is not set: 1 GiB."""
DEFAULT_DIRECTORY_BYTES = 10 << 30
"""Disk space for KV blocks where it is not set: 10 GiB."""

_TIMES = ("load_timeout_seconds", "ack_timeout_seconds", "lease_seconds")
_COMMON = ("load_async", "num_threads", *_TIMES)
_OWN: dict[ConnectorName, tuple[str, ...]] = {
    "HostMemoryConnector": ("cpu_bytes_to_use",),
    "SharedDirectoryConnector": ("shared_storage_path", "max_bytes"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTransferConfig:
    """A KV connector and its settings.

    `kv_connector_extra_config` may have, for each connector: `load_async` (loads run beside the
    steps, else they are part of them; true), `num_threads` (2), `load_timeout_seconds`,
    `ack_timeout_seconds` and `lease_seconds` (never; see `KVConnectorConfig`). HostMemoryConnector:
    `cpu_bytes_to_use` (1 GiB). SharedDirectoryConnector: `shared_storage_path` (needed) and
    `max_bytes` (10 GiB).

    Raises:
        ConfigError: a setting is unknown or cannot be used.
    """

    kv_connector: ConnectorName
    kv_role: Role
    kv_load_failure_policy: FailurePolicy = "fail"
    kv_connector_extra_config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _choice("kv_connector", self.kv_connector, get_args(ConnectorName))
        _choice("kv_role", self.kv_role, get_args(Role))
        _choice("kv_load_failure_policy", self.kv_load_failure_policy, get_args(FailurePolicy))
        extra, known = self.kv_connector_extra_config, (*_COMMON, *_OWN[self.kv_connector])
        if not isinstance(extra, Mapping):
            raise ConfigError("kv_connector_extra_config is no object: write {...}")
        _refuse_unknown("kv_connector_extra_config", extra, known)
        if not isinstance(self.load_async, bool):
            raise ConfigError(f"load_async is {self.load_async!r}: it is true or false")
        for name in ("num_threads", "cpu_bytes_to_use", "max_bytes"):
            if name in extra and not _is_count(extra[name]):
                raise ConfigError(f"{name} is {extra[name]!r}: it is a number, 1 or more")
        if self.kv_connector == "SharedDirectoryConnector" and not self.shared_storage_path:
            raise ConfigError(
                "SharedDirectoryConnector has no shared_storage_path in its "
                "kv_connector_extra_config: name a directory"
            )
        self.config()

    @classmethod
    def parse(cls, text: str) -> KVTransferConfig:
        """Returns what a JSON object says.

        Raises:
            ConfigError: it is no such object, or a setting is unknown or cannot be used.
        """
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"--kv-transfer-config is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise ConfigError("--kv-transfer-config is no JSON object: write {...}")
        _refuse_unknown("--kv-transfer-config", found, [each.name for each in fields(cls)])
        for name in ("kv_connector", "kv_role"):
            if name not in found:
                raise ConfigError(f"--kv-transfer-config has no {name}: it needs one")
        return cls(**found)

    @property
    def load_async(self) -> bool:
        """Whether loads run beside the steps."""
        return self.kv_connector_extra_config.get("load_async", True)  # type: ignore[no-any-return]

    @property
    def num_threads(self) -> int:
        """Threads that read and write."""
        return int(self.kv_connector_extra_config.get("num_threads", 2))

    @property
    def max_bytes(self) -> int:
        """What the connector may keep."""
        extra = self.kv_connector_extra_config
        if self.kv_connector == "HostMemoryConnector":
            return int(extra.get("cpu_bytes_to_use", DEFAULT_HOST_BYTES))
        return int(extra.get("max_bytes", DEFAULT_DIRECTORY_BYTES))

    @property
    def shared_storage_path(self) -> Path | None:
        """Where blocks are shared; None where they are not."""
        path = self.kv_connector_extra_config.get("shared_storage_path")
        if path is None:
            return None
        if not isinstance(path, str | Path) or not str(path):
            raise ConfigError(f"shared_storage_path is {path!r}: it is the path of a directory")
        return Path(path).expanduser().absolute()

    def config(self) -> KVConnectorConfig:
        """Returns what the scheduler has to know of it."""
        extra = self.kv_connector_extra_config
        times: dict[str, float | None] = {}
        for name in _TIMES:
            value = extra.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise ConfigError(f"{name} is {value!r}: it is a number of seconds, or null")
            times[name] = value
        return KVConnectorConfig(
            connector=self.kv_connector,
            role=self.kv_role,
            load_failure_policy=self.kv_load_failure_policy,
            **times,
        )


def _choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}: choose {' or '.join(choices)}")


def _refuse_unknown(where: str, found: Mapping[str, Any], known: Any) -> None:
    unknown = sorted(set(map(str, found)) - set(known))
    if unknown:
        raise ConfigError(
            f"{where} has {', '.join(unknown)}, which is not known: there are {', '.join(known)}"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1

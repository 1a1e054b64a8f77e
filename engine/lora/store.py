"""Adapters in host memory, and what their names stand for.

A name may be loaded again with other weights, while requests still run with the old ones. So the
engine tells adapters apart by *version*: the first of a name is called like it, the next `NAME@2`.
The same weights under the same name are the same version, whenever they come.

What was read stays up to `max_cpu_loras`, besides what open requests need; the one used longest ago
goes first, and is read again when a request asks for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.lora.adapter_error import AdapterError
from engine.lora.module_spec import AdapterModule

if TYPE_CHECKING:
    from engine.lora.reading import LoadedAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterVersion:
    """Weights under a name. `adapter` is what the engine and its record call them."""

    adapter: str
    module: AdapterModule
    digest: str

    @property
    def cache_key(self) -> str:
        """What KV blocks computed with it are told apart by, also by engines that come later."""
        return f"{self.module.name}\0{self.digest}"


class AdapterStore:
    """The adapters that an engine serves.

    Args:
        read: returns the adapter of a directory; called in any thread.
        max_cpu_loras: how many stay in host memory, besides those in use.

    Invariants:
        every name in `names` is a version in `versions`.
    """

    def __init__(self, read: Callable[[Path], LoadedAdapter], *, max_cpu_loras: int) -> None:
        self.read = read
        self.names: dict[str, AdapterVersion] = {}
        """What each name stands for now."""
        self.versions: dict[str, AdapterVersion] = {}
        """By what the engine calls them; also those that have no name any more."""
        self._max_cpu_loras = max_cpu_loras
        self._resident: OrderedDict[str, LoadedAdapter] = OrderedDict()

    def load(self, module: AdapterModule) -> AdapterVersion:
        """Reads an adapter and registers it.

        Raises:
            AdapterError: it cannot be served.
        """
        return self.register(module, self.read(module.path), in_use=())

    def register(
        self, module: AdapterModule, loaded: LoadedAdapter, *, in_use: Collection[str]
    ) -> AdapterVersion:
        """Lets a name stand for an adapter from now on; returns its version."""
        version = AdapterVersion(
            adapter=self._version_name(module.name, loaded.digest),
            module=module,
            digest=loaded.digest,
        )
        self.names[module.name] = self.versions[version.adapter] = version
        self.keep(version.adapter, loaded, in_use=in_use)
        return version

    def unregister(self, name: str, *, in_use: Collection[str]) -> None:
        """Forgets a name. Its weights go once no request needs them.

        Raises:
            AdapterError: nothing is called so.
        """
        version = self.names.pop(name, None)
        if version is None:
            raise AdapterError(f"adapter {name!r} is not loaded")
        if version.adapter in self._resident:
            self._resident.move_to_end(version.adapter, last=False)
        if version.adapter not in in_use:
            self._resident.pop(version.adapter, None)

    def bring(self, name: str, *, in_use: Collection[str]) -> AdapterVersion:
        """Returns what a name stands for, its weights in memory; reads them if they are not.

        Raises:
            AdapterError: nothing is called so, or it cannot be read any more.
        """
        version = self.names.get(name)
        if version is None:
            raise AdapterError(
                f"adapter {name!r} is not loaded: {', '.join(self.names) or 'none'} is"
            )
        if self.resident(version.adapter) is None:
            self.keep(version.adapter, self.read(version.module.path), in_use=in_use)
        return version

    def resident(self, adapter: str) -> LoadedAdapter | None:
        """Returns a version's weights, used just now; None if they are not in memory."""
        loaded = self._resident.get(adapter)
        if loaded is not None:
            self._resident.move_to_end(adapter)
        return loaded

    @property
    def resident_adapters(self) -> list[str]:
        """Versions in memory, the one used longest ago first."""
        return list(self._resident)

    def keep(self, adapter: str, loaded: LoadedAdapter, *, in_use: Collection[str]) -> None:
        """Takes a version's weights in; whoever is over the limit and not in use goes.

        Raises:
            AdapterError: they are not those that were registered.
        """
        if loaded.digest != self.versions[adapter].digest:
            raise AdapterError(
                f"adapter {adapter!r} has changed on disk since it was loaded: load it again "
                "(/v1/load_lora_adapter with load_inplace)"
            )
        self._resident[adapter] = loaded
        self._resident.move_to_end(adapter)
        for victim in list(self._resident)[:-1]:
            if len(self._resident) <= self._max_cpu_loras:
                break
            if victim not in in_use:
                del self._resident[victim]

    def _version_name(self, name: str, digest: str) -> str:
        number, candidate = 1, name
        while (known := self.versions.get(candidate)) is not None:
            if (known.module.name, known.digest) == (name, digest):
                break
            number += 1
            candidate = f"{name}@{number}"
        return candidate

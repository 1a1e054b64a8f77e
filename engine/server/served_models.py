"""The names that requests choose a model by: the engine's own, and those of its adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.lora.adapter_error import AdapterError
from engine.lora.module_spec import AdapterModule
from engine.lora.store import AdapterVersion
from engine.server.api_error import ApiError, bad_request
from engine.server.engine_client import EngineClient
from engine.server.messages import AdapterRefused, EngineReady

MAX_NAMES_TOLD = 8
"""How many names an error lists."""


class ServedModels:
    """What an engine serves, by name."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._loading: set[str] = set()

    def choose(self, name: str | None) -> AdapterVersion | None:
        """Returns the adapter that a request names; None for the model itself.

        Raises:
            ApiError: 404, nothing is called so.
        """
        if name is None or name == self._client.settings.model_name:
            return None
        adapter = self._client.adapters.get(name)
        if adapter is None:
            raise ApiError(
                404,
                f"model {name!r} is not served here: {self._told_names()}",
                "model",
                "model_not_found",
            )
        return adapter

    def card(self, name: str) -> dict[str, Any]:
        """Returns a model as `/v1/models` shows it; raises as `choose` does."""
        ready = self._client.check_ready()
        adapter = self.choose(name)
        base = self._client.settings.model_name
        if adapter is None:
            return _card(base, ready, root=ready.model_directory or base, parent=None)
        module = adapter.module
        parent = module.base_model_name or base
        return _card(module.name, ready, root=str(module.path), parent=parent)

    def cards(self) -> list[dict[str, Any]]:
        """Returns all models, the engine's own first."""
        names = [self._client.settings.model_name, *self._client.adapters]
        return [self.card(name) for name in names]

    async def load(self, name: str, path: str, *, in_place: bool) -> None:
        """Loads an adapter, or, in place, lets a name stand for another one.

        Raises:
            ApiError: 400, the name is taken or the adapter cannot be served.
        """
        try:
            module = AdapterModule(name=name, path=Path(path))
        except AdapterError as error:
            raise bad_request(str(error), "lora_name") from None
        self._check_free(name, in_place=in_place)
        self._loading.add(name)
        try:
            answer = await self._client.load_adapter(module)
        finally:
            self._loading.discard(name)
        if isinstance(answer, AdapterRefused):
            raise bad_request(answer.error, "lora_path")

    async def unload(self, name: str) -> None:
        """Forgets an adapter's name; requests that run with it go on.

        Raises:
            ApiError: 404, no adapter is called so.
        """
        if name not in self._client.adapters:
            raise ApiError(404, f"adapter {name!r} is not loaded", "lora_name", "model_not_found")
        answer = await self._client.unload_adapter(name)
        if answer is not None:
            raise bad_request(answer.error, "lora_name")

    def _check_free(self, name: str, *, in_place: bool) -> None:
        if name == self._client.settings.model_name:
            raise bad_request(f"{name!r} is the model's own name: choose another", "lora_name")
        if name in self._loading:
            raise bad_request(f"adapter {name!r} is being loaded", "lora_name")
        if name in self._client.adapters and not in_place:
            raise bad_request(
                f"adapter {name!r} is loaded: unload it, or set load_inplace", "lora_name"
            )

    def _told_names(self) -> str:
        names = [self._client.settings.model_name, *self._client.adapters]
        told = ", ".join(repr(name) for name in names[:MAX_NAMES_TOLD])
        more = len(names) - MAX_NAMES_TOLD
        verb = "is" if len(names) == 1 else "are"
        return f"{told} {verb}" if more <= 0 else f"{told} and {more} more are"


def _card(name: str, ready: EngineReady, *, root: str, parent: str | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": ready.started_ts // 1_000_000_000,
        "owned_by": "stepscope",
        "root": root,
        "parent": parent,
        "max_model_len": ready.config.scheduler.max_model_len,
        "vocab_size": ready.vocab_size,
    }

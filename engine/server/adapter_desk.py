"""The step loop's adapters: read beside the steps, with requests for them held back meanwhile.

Reading a file takes longer than a step, so a thread does it and puts what it read into the inbox.
A request whose adapter is not in host memory is not handed to the core before: between its
`received_ts` and its arrival lies the wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from pathlib import Path

from engine.lora.adapter_error import AdapterError
from engine.lora.store import AdapterStore, AdapterVersion
from engine.server.messages import (
    AdapterRead,
    AdapterRefused,
    AddRequest,
    LoadAdapter,
    UnloadAdapter,
)

Release = tuple[AddRequest, str | None]
"""A request that was held back, and why it cannot be served if it cannot."""


class AdapterDesk:
    """What the step loop asks about adapters.

    Args:
        store: the engine's adapters; None where none can be served.
        in_use: returns those of requests that the core has.
        post: puts a message into the inbox, from any thread.
    """

    def __init__(
        self,
        store: AdapterStore | None,
        in_use: Callable[[], Collection[str]],
        post: Callable[[AdapterRead], None],
    ) -> None:
        self._store = store
        self._core_uses = in_use
        self._post = post
        self._held: dict[str, list[AddRequest]] = {}
        self._loads: dict[int, LoadAdapter] = {}

    # ------------------------------------------------------------------------------------ requests

    def complaint_about(self, adapter: str) -> str | None:
        """Returns why no request can have this adapter; None if one can."""
        if self._store is None or adapter not in self._store.versions:
            return f"adapter {adapter!r} is not loaded"
        return None

    def cache_key(self, adapter: str | None) -> str | None:
        """Returns what KV blocks computed with an adapter are told apart by."""
        if adapter is None or self._store is None or adapter not in self._store.versions:
            return None
        return self._store.versions[adapter].cache_key

    def holds_back(self, request: AddRequest) -> bool:
        """Whether a request has to wait for its adapter; `released` brings it back then."""
        if self._store is None or request.adapter is None or request.rejection is not None:
            return False
        version = self._store.versions.get(request.adapter)
        if version is None or self._store.resident(version.adapter) is not None:
            return False
        if version.adapter not in self._held:
            self._held[version.adapter] = []
            self._start_reading(version.module.path, adapter=version.adapter)
        self._held[version.adapter].append(request)
        return True

    def give_back(self, request_ids: Collection[str] | None = None) -> list[AddRequest]:
        """Returns those of the requests that were held back until now; None means all."""
        found = [
            request
            for waiting in self._held.values()
            for request in waiting
            if request_ids is None or request.request_id in request_ids
        ]
        for waiting in self._held.values():
            waiting[:] = [request for request in waiting if request not in found]
        return found

    # ---------------------------------------------------------------------------- loads and unloads

    def load(self, ticket: int, question: LoadAdapter) -> None:
        """Begins to load an adapter; `answer` tells what came of it."""
        self._loads[ticket] = question
        self._start_reading(question.module.path, ticket=ticket)

    def unload(self, question: UnloadAdapter) -> AdapterRefused | None:
        """Forgets a name; requests that run with it go on."""
        if self._store is None:
            return AdapterRefused("no adapter can be served: start with --enable-lora")
        try:
            self._store.unregister(question.name, in_use=self._in_use())
        except AdapterError as error:
            return AdapterRefused(str(error))
        return None

    def answer(self, message: AdapterRead) -> AdapterVersion | AdapterRefused:
        """Returns what came of a load, which is in force from now on."""
        question = self._loads.pop(message.ticket or 0)
        if message.loaded is None or self._store is None:
            return AdapterRefused(message.error or "no adapter can be served")
        return self._store.register(question.module, message.loaded, in_use=self._in_use())

    def released(self, message: AdapterRead) -> list[Release]:
        """Returns the requests that waited for an adapter which has been read, or could not be."""
        adapter = message.adapter or ""
        error = message.error
        if message.loaded is not None and self._store is not None:
            try:
                self._store.keep(adapter, message.loaded, in_use=self._in_use())
            except AdapterError as changed:
                error = str(changed)
        return [(request, error) for request in self._held.pop(adapter, [])]

    def _in_use(self) -> frozenset[str]:
        held = (adapter for adapter, waiting in self._held.items() if waiting)
        return frozenset((*self._core_uses(), *held))

    def _start_reading(
        self, path: Path, *, ticket: int | None = None, adapter: str | None = None
    ) -> None:
        def read() -> None:
            loaded, error = None, None
            try:
                if self._store is None:
                    raise AdapterError("no adapter can be served: start with --enable-lora")
                loaded = self._store.read(path)
            except AdapterError as failure:
                error = str(failure)
            except Exception as failure:  # whatever a file does, the engine goes on
                error = f"{path} cannot be loaded: {type(failure).__name__}: {failure}"
            self._post(AdapterRead(ticket=ticket, adapter=adapter, loaded=loaded, error=error))

        threading.Thread(target=read, name="adapter-reader", daemon=True).start()

"""An operator's routes: pause, go on, empty the prefix cache, end requests, check the books.

Paths and parameters are vLLM's where it has them (`/pause`, `/resume`, `/is_paused`,
`/reset_prefix_cache`, `/abort_requests`). Who may call them is `access`' business.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request

from engine.scheduler import PauseState
from engine.server.access import Access
from engine.server.api_error import bad_request
from engine.server.engine_client import EngineClient
from engine.server.integrity import checked_books
from engine.server.json_body import json_body

PauseMode = Literal["abort", "wait", "keep", "new"]

DRAIN_POLL_SECONDS = 0.05
"""How often a pause that waits looks whether the last request has ended."""


def admin_router(client: EngineClient, access: Access) -> APIRouter:
    """Returns the routes over an engine."""
    router = APIRouter(dependencies=[Depends(access.check_operator)])

    @router.post("/pause")
    async def pause(
        mode: Annotated[PauseMode, Query()] = "abort",
        clear_cache: Annotated[bool, Query()] = True,
    ) -> dict[str, Any]:
        """Stops the engine from taking up requests; what becomes of those under way is `mode`'s."""
        if mode == "keep":
            await client.set_pause(PauseState.PAUSED_ALL)
            return {"status": "paused"}
        await client.set_pause(PauseState.PAUSED_NEW)
        if mode == "new":
            return {"status": "paused"}
        if mode == "abort":
            await client.abort(None)
        await _drained(client)
        if clear_cache and client.pause is PauseState.PAUSED_NEW:
            await client.reset_prefix_cache(reset_running=False)
        return {"status": "paused"}

    @router.post("/resume")
    async def resume() -> dict[str, Any]:
        """Lets the engine go on."""
        await client.set_pause(PauseState.UNPAUSED)
        return {"status": "resumed"}

    @router.get("/is_paused")
    async def is_paused() -> dict[str, Any]:
        """Tells whether, and how far, the engine is paused."""
        client.check_ready()
        paused = client.pause is not PauseState.UNPAUSED
        return {"is_paused": paused, "pause": client.pause.name.lower()}

    @router.post("/reset_prefix_cache")
    async def reset_prefix_cache(
        reset_running_requests: Annotated[bool, Query()] = False,
        reset_external: Annotated[bool, Query()] = False,
    ) -> dict[str, Any]:
        """Empties the prefix cache of this engine."""
        if reset_external:
            raise bad_request(
                "reset_external is not supported: empty the connector's store itself",
                "reset_external",
            )
        done = await client.reset_prefix_cache(reset_running=reset_running_requests)
        return {"success": done}

    @router.post("/abort_requests")
    async def abort_requests(request: Request) -> dict[str, Any]:
        """Ends requests: those named, or all where none is named."""
        names = _read_names(await json_body(request))
        return {"status": "aborted", "aborted": await client.abort(names)}

    @router.post("/stepscope/integrity")
    async def integrity() -> dict[str, Any]:
        """Checks the engine's books."""
        return await checked_books(client)

    return router


async def _drained(client: EngineClient) -> None:
    """Returns once nobody holds KV blocks any more, or somebody has let the engine go on."""
    while client.pause is PauseState.PAUSED_NEW:
        stats = await client.stats()
        if not (stats.num_running or stats.kv_cache_usage_ratio):
            return
        await asyncio.sleep(DRAIN_POLL_SECONDS)


def _read_names(raw: bytes) -> frozenset[str] | None:
    """Returns the ids in the body of an abort; None where it names none.

    Raises:
        ApiError: 400, it is something else.
    """
    try:
        body = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    names = body.get("request_ids") if isinstance(body, dict) else body
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request(
            'the body must be like {"request_ids": ["ID", ...]}; without ids all are meant',
            "request_ids",
        )
    bare = (name.removeprefix("chatcmpl-").removeprefix("cmpl-") for name in names)
    return frozenset((*names, *bare)) or None  # answers show an id with such a prefix

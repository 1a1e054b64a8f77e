"""The check of a live engine's books, for `stepscope doctor --deep`.

It stops the step loop for as long as it takes, so only an operator may ask (`access`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from engine.server.engine_client import EngineClient

SCHEMA_VERSION = 1


async def checked_books(client: EngineClient) -> dict[str, Any]:
    """Returns what an engine found in its books, and who it is, as JSON takes it.

    Raises:
        EngineUnavailableError: it cannot be asked now.
    """
    ready = client.check_ready()
    reply = await client.examine()
    return {
        "schema_version": SCHEMA_VERSION,
        "pid": ready.pid,
        "started_ts": ready.started_ts,
        "duration_ns": reply.duration_ns,
        "error": reply.error,
        "report": None if reply.report is None else asdict(reply.report),
    }

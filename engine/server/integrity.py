"""The check of a live engine's books, for `stepscope doctor --deep`.

The API has no notion of who may do what, so the check is there for callers on the engine's own
machine only: it stops the step loop for as long as it takes. For everybody else the path does not
exist. A caller whom a proxy on this machine passes on counts as the address that the proxy names.
"""

from __future__ import annotations

import ipaddress
from dataclasses import asdict
from typing import Any

from fastapi import Request

from engine.server.engine_client import EngineClient

SCHEMA_VERSION = 1


def is_from_this_machine(request: Request) -> bool:
    """Whether a caller's address is a loopback one, or the very one that it called."""
    if request.client is None:
        return False
    server = request.scope.get("server")
    if server is not None and request.client.host == server[0]:
        return True
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:  # a name: not from a socket
        return False


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

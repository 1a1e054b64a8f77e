"""How a live collector fares, asked through its socket: no disk is needed to say so."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from typing import Any

from telemetry.store import wire
from telemetry.store.presence import CollectorNotice

_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftAlone:
    """A file among the rings that cannot be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """How a source inside a collector does, in a line."""

    text: str
    is_well: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorStatus:
    """What a collector says about itself. `outage` is None while the log can be written."""

    num_rings: int
    outage: str | None
    left_alone: list[LeftAlone]
    sources: list[SourceStatus] = field(default_factory=list)
    """Each source beside the rings that it listens to."""


def ask_status(notice: CollectorNotice) -> CollectorStatus | None:
    """Returns how a collector fares; None where it does not answer, or is of an older version."""
    with (
        contextlib.suppress(OSError, ValueError, TypeError, KeyError),
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.settimeout(_PATIENCE_SECONDS)
        client.connect(notice.socket)
        wire.send_status_request(client)
        return _status(wire.receive_status(client))
    return None


def _status(data: dict[str, Any]) -> CollectorStatus:
    return CollectorStatus(
        num_rings=int(data["num_rings"]),
        outage=data["outage"],
        left_alone=[LeftAlone(**each) for each in data["left_alone"]],
        sources=[SourceStatus(**each) for each in data.get("sources", ())],
    )

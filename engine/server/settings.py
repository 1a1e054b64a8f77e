"""What the API process was told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The API process's flags.

    `live_timeout_seconds`: with requests open and no token scheduled for so long, `/live` fails.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    live_timeout_seconds: float = 30.0

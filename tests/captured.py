"""Pages of `/metrics` that were captured from a real vLLM, in a storm and in a stall."""

from __future__ import annotations

from pathlib import Path

from telemetry.sql.packed_log import unpack

DATA = Path(__file__).parent / "data" / "vllm"


def captured_scrapes(name: str, into: Path) -> Path:
    """Unpacks captured pages into a directory of their own; returns it."""
    directory = into / name
    directory.mkdir()
    unpack(DATA / "scrapes" / f"{name}.tar.xz", directory)
    return directory

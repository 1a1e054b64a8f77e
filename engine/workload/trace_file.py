"""Opens a trace, packed or not, and reads it with the reader that fits its first line."""

from __future__ import annotations

import gzip
from pathlib import Path

from engine.workload.azure import read_azure
from engine.workload.mooncake import read_mooncake
from engine.workload.plan import PlannedRequest, WorkloadError

GZIP_MAGIC = b"\x1f\x8b"


def read_trace(path: Path, *, scale: int = 1) -> list[PlannedRequest]:
    """Returns the requests of an Azure CSV or a Mooncake JSONL, gzipped or plain.

    Raises:
        WorkloadError: the file cannot be read, or is neither.
    """
    if scale < 1:
        raise WorkloadError(f"--scale is {scale}: it must be 1 or more")
    text = _read_text(path)
    lines = text.splitlines()
    if not lines:
        raise WorkloadError(f"{path.name} is empty: expected an Azure CSV or a Mooncake JSONL")
    if lines[0].lstrip().startswith("{"):
        return read_mooncake(lines, name=path.name, scale=scale)
    return read_azure(lines, name=path.name, scale=scale)


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (OSError, EOFError) as error:
        raise WorkloadError(f"cannot read the trace {path}: {error}") from None
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path.name} is not a text file: {error}") from None

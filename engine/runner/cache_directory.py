"""Where checkpoints that are made on this machine are kept, and how each is made once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def default_cache_dir() -> Path:
    """Returns `$XDG_CACHE_HOME/stepscope`, by default `~/.cache/stepscope`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stepscope"


def made_once(target: Path, write: Callable[[Path], None]) -> Path:
    """Returns a checkpoint's directory, which `write` fills first if it is not there.

    Written beside its place and renamed, so two processes at once are fine: the first to finish
    wins, and what it wrote is what the other would have written.
    """
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f"{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        write(making)
        making.chmod(0o755)
        try:
            making.rename(target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target

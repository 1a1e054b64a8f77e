"""A log is its owner's alone, whatever the umask and wherever it lies."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.collector import prepare_log
from tests.telemetry.collector.builders import (
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)

NOBODY = 65534
_READ = """
for path; do
  if [ -d "$path" ]; then ls "$path/"; else head -c 1 "$path"; fi && echo && echo "read $path"
done
true
"""
"""Names what can be read, for the shell."""


@pytest.fixture
def log() -> Iterator[Path]:
    """A log in a directory that everybody may enter, while a collector writes it."""
    directory = Path(tempfile.mkdtemp(prefix="stepscope-modes-"))
    directory.chmod(0o755)
    log = directory / "log"
    log.mkdir()
    log.chmod(0o755)
    ring = ring_for(log)
    try:
        with collector_process(log, prologue="os.umask(0o022)"):
            wait_for_collector(log)
            record(ring, 0, 40)
            wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(40,)])
            yield log
    finally:
        ring.close()
        shutil.rmtree(directory)


def test_files_are_0600_and_directories_0700(log: Path) -> None:
    paths = list(log.rglob("*"))
    assert {".duckdb", ".wal", ".json", ".lock"} <= {path.suffix for path in paths}
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in paths}
    wrong = {
        name: f"{mode:o}"
        for name, mode in modes.items()
        if mode != (0o700 if (log / name).is_dir() else 0o600)
    }
    assert wrong == {}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can read as another user")
def test_another_user_reads_nothing(log: Path) -> None:
    open_to_all = log.parent / "open"
    open_to_all.write_text("x")
    open_to_all.chmod(0o644)
    paths = [str(path) for path in log.rglob("*")]
    assert len(paths) > 4
    done = subprocess.run(
        ["/bin/sh", "-c", _READ, "sh", *paths, str(open_to_all)],
        user=NOBODY, group=NOBODY, extra_groups=[], cwd="/",
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    read = [line.partition("read ")[2] for line in done.stdout.splitlines() if "read " in line]
    assert read == [str(open_to_all)]


def test_a_new_log_directory_is_0700(tmp_path: Path) -> None:
    prepare_log(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700

"""A ring finds a place, or the engine runs on without one, with one warning."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.recorder import NullRecorder
from telemetry.records import RunClock
from telemetry.ring import RingReader, RingRecorder, open_recorder, ring_directories
from tests.telemetry.ring.builders import step

MIB = 1 << 20


@contextlib.contextmanager
def tiny_tmpfs(path: Path, size: int) -> Iterator[Path]:
    """Mounts a tmpfs of `size` bytes, as the /dev/shm of a container is."""
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_full_shared_memory_gives_a_null_recorder_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tiny_tmpfs(tmp_path / "shm", 1 * MIB) as shm, caplog.at_level(logging.WARNING):
        environ = {"STEPSCOPE_RING_DIR": str(shm), "STEPSCOPE_RING_MB": "4"}
        recorder = open_recorder(None, RunClock.start(), environ=environ)
        assert isinstance(recorder, NullRecorder)
        recorder.record_step(step(1), [], None)
        assert list(shm.iterdir()) == []
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert "STEPSCOPE_RING_MB" in caplog.text


def test_a_file_size_limit_gives_a_null_recorder_and_one_warning(tmp_path: Path) -> None:
    code = """
import logging, resource, sys
from pathlib import Path
from telemetry.recorder import NullRecorder
from telemetry.records import RunClock
from telemetry.ring import open_recorder
logging.basicConfig(format="WARN %(message)s")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
recorder = open_recorder(Path(sys.argv[1]), RunClock.start())
assert isinstance(recorder, NullRecorder)
"""
    environ = {**os.environ, "STEPSCOPE_RING_DIR": str(tmp_path / "r"), "STEPSCOPE_RING_MB": "4"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr.count("WARN") == 1
    assert list((tmp_path / "r").iterdir()) == []


def test_without_room_in_memory_the_ring_lies_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    blocked = tmp_path / "file"
    blocked.write_text("")
    with caplog.at_level(logging.WARNING):
        recorder = open_recorder(
            log, RunClock.start(), ring_bytes=MIB, environ={"STEPSCOPE_RING_DIR": str(blocked)}
        )
    assert isinstance(recorder, RingRecorder)
    assert recorder.path.parent == log / "rings"
    assert len(caplog.records) == 1
    recorder.close()


@pytest.mark.parametrize("size", ["0.2", "-1", "much", "nan", ""])
def test_a_size_that_is_none_is_said_and_the_engine_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: str
) -> None:
    environ = {"STEPSCOPE_RING_DIR": str(tmp_path), "STEPSCOPE_RING_MB": size}
    with caplog.at_level(logging.WARNING):
        assert isinstance(open_recorder(None, RunClock.start(), environ=environ), NullRecorder)
    assert f"STEPSCOPE_RING_MB is {size!r}" in caplog.text


def test_a_ring_is_for_this_user_alone(tmp_path: Path) -> None:
    directory = tmp_path / f"stepscope-{os.getuid()}"
    directory.mkdir(mode=0o755)
    ring = RingRecorder(directory, RunClock.start(), ring_bytes=MIB)
    assert stat.S_IMODE(ring.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    ring.close()


def test_a_folder_that_another_user_prepared_is_not_used(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    directory = tmp_path / f"stepscope-{os.getuid()}"
    directory.mkdir()
    os.chown(directory, 12345, 12345)
    with pytest.raises(PermissionError, match="belongs to user 12345"):
        RingRecorder(directory, RunClock.start(), ring_bytes=MIB)


def test_a_ring_says_whose_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    clock = RunClock.start()
    recorder = open_recorder(
        log, clock, ring_bytes=MIB, environ={"STEPSCOPE_RING_DIR": str(tmp_path)}
    )
    assert isinstance(recorder, RingRecorder)
    reader = RingReader(recorder.path)
    assert reader.log == log.resolve()
    assert reader.engine == recorder.engine
    assert reader.path.name == f"{recorder.engine:016x}.ring"
    assert reader.word("wall_anchor_ns") == clock.wall_anchor_ns
    assert reader.word("pid") == os.getpid()
    recorder.close()


def test_the_default_place_is_this_users_folder_in_shared_memory(tmp_path: Path) -> None:
    first, second = ring_directories(tmp_path, {})
    assert first.name == f"stepscope-{os.getuid()}"
    assert second == tmp_path / "rings"

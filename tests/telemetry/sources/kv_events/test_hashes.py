"""Stored hashes compare equal within one log, and say nothing outside it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from telemetry.errors import StepscopeError
from telemetry.sources.kv_events.hashes import KEY_NAME, BlockHasher, key_of


def test_equal_in_one_log_and_in_no_other(tmp_path: Path) -> None:
    logs = [tmp_path / "one", tmp_path / "one", tmp_path / "other"]
    for log in logs:
        log.mkdir(exist_ok=True)
    first, again, other = (BlockHasher(key_of(log)).texts([b"a", 5]) for log in logs)
    assert first == again != other


def test_hashes_are_sixteen_digits_that_tell_blocks_apart() -> None:
    texts = BlockHasher(bytes(32)).texts([b"a", b"b", 5, -5, 1 << 63]).split(" ")
    assert {len(text) for text in texts} == {16}
    assert len(set(texts)) == 5


def test_the_key_is_its_owners_alone(tmp_path: Path) -> None:
    key_of(tmp_path)
    assert stat.S_IMODE((tmp_path / KEY_NAME).stat().st_mode) == 0o600


def test_a_key_that_is_none_is_not_used(tmp_path: Path) -> None:
    (tmp_path / KEY_NAME).write_bytes(b"short")
    with pytest.raises(StepscopeError, match="has 5 bytes and should have 32: remove it"):
        key_of(tmp_path)


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StepscopeError, match="cannot be used: No such file"):
        key_of(tmp_path / "none")

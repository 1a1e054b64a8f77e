"""The shared directory: what others made or broke never becomes KV, and it stays in its bound."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from engine.config import ConfigError
from engine.connectors.block_store import BlockStoreError, Payload
from engine.connectors.shared_directory import SharedDirectoryStore

A, B = bytes(range(16)), bytes(range(1, 17))


def block(value: int = 7) -> Payload:
    return np.arange(value, value + 100, dtype=np.uint8)


def store(path: Path, *, model: str = "one", max_bytes: int = 1 << 20) -> SharedDirectoryStore:
    return SharedDirectoryStore(path / "kv", {"model": model}, max_bytes=max_bytes)


def file_of(path: Path, key: bytes = A) -> Path:
    (found,) = path.glob(f"kv/*/*/{key.hex()}.kv")
    return found


def test_another_store_on_it_reads_what_one_wrote(tmp_path: Path) -> None:
    store(tmp_path).write(A, block())
    other = store(tmp_path)
    assert other.has(A)
    assert other.read(A).tolist() == block().tolist()


def test_another_model_does_not_find_it(tmp_path: Path) -> None:
    store(tmp_path).write(A, block())
    assert not store(tmp_path, model="two").has(A)


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    store(tmp_path).write(A, block())
    for path in (tmp_path / "kv").rglob("*"):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700


def test_nothing_is_left_of_a_write_but_the_block(tmp_path: Path) -> None:
    store(tmp_path).write(A, block())
    assert not list(tmp_path.rglob("*.tmp"))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def cut_in_the_header(path: Path) -> None:
    os.truncate(path, 20)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-50] ^= 4
    path.write_bytes(content)


def make_foreign(path: Path) -> None:
    path.write_bytes(b"something else altogether" * 8)


@pytest.mark.parametrize(
    "spoil", [cut, cut_in_the_header, empty, lengthen, flip_a_bit, make_foreign]
)
def test_a_spoiled_file_is_an_error_and_is_removed(tmp_path: Path, spoil: object) -> None:
    mine = store(tmp_path)
    mine.write(A, block())
    spoil(file_of(tmp_path))  # type: ignore[operator]
    with pytest.raises(BlockStoreError):
        mine.read(A)
    assert not mine.has(A)


def test_a_file_under_another_blocks_name_is_an_error(tmp_path: Path) -> None:
    mine = store(tmp_path)
    mine.write(A, block())
    mine.write(B, block(8))
    file_of(tmp_path, A).write_bytes(file_of(tmp_path, B).read_bytes())
    with pytest.raises(BlockStoreError, match="not the block that its name says"):
        mine.read(A)


def test_a_file_of_another_model_is_an_error(tmp_path: Path) -> None:
    mine, other = store(tmp_path), store(tmp_path, model="two")
    other.write(A, block())
    theirs = file_of(tmp_path).read_bytes()
    mine.write(A, block())
    file_in = next(p for p in tmp_path.glob(f"kv/{mine.namespace.hex()}/*/{A.hex()}.kv"))
    file_in.write_bytes(theirs)
    with pytest.raises(BlockStoreError):
        mine.read(A)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    mine = store(tmp_path)
    mine.write(A, block())
    file_of(tmp_path).unlink()
    with pytest.raises(BlockStoreError, match="cannot be read"):
        mine.read(A)


def test_it_stays_within_its_bound_and_what_was_used_stays(tmp_path: Path) -> None:
    mine = store(tmp_path, max_bytes=2_000)
    keys = [bytes([n]) * 16 for n in range(30)]
    for age, key in enumerate(keys):
        mine.write(key, block())
        os.utime(file_of(tmp_path, key), (1_000 + age, 1_000 + age))
        mine.read(keys[0])
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 2_000
    assert [mine.has(keys[n]) for n in (0, 1, 29)] == [True, False, True]


def test_a_directory_that_is_too_full_is_brought_within_the_bound_at_the_start(
    tmp_path: Path,
) -> None:
    large = store(tmp_path, max_bytes=1 << 20)
    for n in range(30):
        large.write(bytes([n]) * 16, block())
    store(tmp_path, model="two", max_bytes=2_000)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 2_000


def test_a_block_larger_than_the_bound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BlockStoreError, match="max_bytes is 50"):
        store(tmp_path, max_bytes=50).write(A, block())


def test_what_a_killed_engine_left_is_removed(tmp_path: Path) -> None:
    store(tmp_path).write(A, block())
    left = file_of(tmp_path).with_name(".left.kv.1.ab.tmp")
    left.touch()
    os.utime(left, (1, 1))
    store(tmp_path)
    assert not left.exists()


def test_a_temporary_file_of_a_living_engine_stays(tmp_path: Path) -> None:
    store(tmp_path).write(A, block())
    left = file_of(tmp_path).with_name(".now.kv.1.ab.tmp")
    left.touch()
    store(tmp_path)
    assert left.exists()


def test_files_of_others_in_it_are_left_alone(tmp_path: Path) -> None:
    store(tmp_path).write(A, block())
    foreign = tmp_path / "kv" / "notes.kv"
    foreign.touch()
    os.utime(foreign, (1, 1))
    store(tmp_path, max_bytes=1)
    assert foreign.exists()


def test_a_manifest_that_was_changed_is_refused(tmp_path: Path) -> None:
    store(tmp_path)
    (manifest,) = tmp_path.rglob("manifest.json")
    manifest.write_text("{}")
    with pytest.raises(ConfigError, match="not what its directory says"):
        store(tmp_path)


def test_a_directory_that_others_may_write_into_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir(mode=0o700)
    (tmp_path / "kv").chmod(0o770)
    with pytest.raises(ConfigError, match="chmod 700"):
        store(tmp_path)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        store(tmp_path)

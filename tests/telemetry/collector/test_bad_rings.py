"""Files that are no whole ring: each is refused and told, and costs the other rings nothing."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from telemetry.ring import layout as lay
from tests.telemetry.collector.builders import collecting, record, ring_for, rows


def put(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def set_word(ring: _Copy, name: str, value: int) -> None:
    put(ring.path, lay.WORD[name] * 8, struct.pack("<Q", value))


def set_layout(ring: _Copy, data: bytes) -> None:
    set_word(ring, "layout_bytes", len(data))
    put(ring.path, lay.LAYOUT_OFFSET, data)


def change_layout(ring: _Copy, change: Callable[[dict[str, Any]], object]) -> None:
    with ring.path.open("rb") as file:
        size = struct.unpack_from("<Q", file.read(4096), lay.WORD["layout_bytes"] * 8)[0]
        data = json.loads(file.read(size))
    change(data)
    set_layout(ring, json.dumps(data, separators=(",", ":")).encode())


def set_region(name: str, **places: Any) -> Callable[[_Copy], None]:
    return lambda ring: change_layout(ring, lambda data: data["regions"][name].update(places))


def set_commit(column: int, value: int, row: int = 1) -> Callable[[_Copy], None]:
    def change(ring: _Copy) -> None:
        region = ring.layout.regions["commits"]
        offset = region.offset + row * region.row_bytes + 8 * column
        put(ring.path, offset, struct.pack("<Q", value))

    return change


def set_blob(data: bytes) -> Callable[[_Copy], None]:
    return lambda ring: put(ring.path, ring.layout.regions["blob"].offset, data)


BAD: dict[str, Callable[[_Copy], object]] = {
    "another mark": lambda ring: set_word(ring, "magic", 7),
    "nothing in it": lambda ring: os.truncate(ring.path, 0),
    "half a header": lambda ring: os.truncate(ring.path, 1000),
    "only a header": lambda ring: os.truncate(ring.path, lay.HEADER_BYTES),
    "half of the rows": lambda ring: os.truncate(ring.path, ring.path.stat().st_size // 2),
    "no layout": lambda ring: set_layout(ring, b""),
    "a layout that is garbage": lambda ring: set_layout(ring, b"\xff\x00{[" * 50),
    "a layout that is a list": lambda ring: set_layout(ring, b"[]"),
    "a layout without an end": lambda ring: set_word(ring, "layout_bytes", 1 << 60),
    "brackets in brackets": lambda ring: set_layout(ring, b"[" * 20_000),
    "no regions": lambda ring: change_layout(ring, lambda data: data.pop("regions")),
    "regions that are a list": lambda ring: change_layout(ring, lambda d: d.update(regions=[1])),
    "an engine that is no number": lambda ring: change_layout(ring, lambda d: d.update(engine="x")),
    "a word outside the header": lambda ring: change_layout(
        ring, lambda data: data["state"].update(published=1 << 40)
    ),
    "a word at a text": lambda ring: change_layout(ring, lambda d: d["state"].update(closed="0")),
    "an offset beyond the file": set_region("steps", offset=1 << 50),
    "an offset before the file": set_region("events", offset=-4096),
    "an offset that is a text": set_region("events", offset="here"),
    "no capacity": set_region("commits", capacity=0),
    "a capacity below nothing": set_region("step_requests", capacity=-1),
    "a capacity beyond the file": set_region("steps", capacity=1 << 40),
    "a capacity of the blob beyond the file": set_region("blob", capacity=1 << 40),
    "rows of no size": set_region("commits", row_bytes=1 << 40),
    "a column outside": set_region("steps", columns=[["ts", "i8", 1 << 50, 8]]),
    "a column of no type": set_region("steps", columns=[["ts", "O", 0, 8]]),
    "more commits than can be": lambda ring: set_word(ring, "published", 1 << 63),
    "a torn commit": set_commit(3, 1 << 40),
    "a commit that goes back": set_commit(2, 5),
    "a commit of many dense rows": set_commit(7, 1 << 34),
    "a commit of a distant time": set_commit(1, 1 << 62, row=0),
    "a commit before all time": set_commit(1, 1, row=0),
    "a heartbeat of a distant time": lambda ring: set_word(ring, "heartbeat_ns", 1 << 62),
    "texts in texts": set_blob(b"[" * 60),
}


class _Copy:
    """The file of a ring whose engine has gone: a living one would write its header again."""

    def __init__(self, path: Path, layout: lay.Layout) -> None:
        self.path = path
        self.layout = layout


@dataclass
class Seen:
    """What came of a folder with one good ring and all the bad ones."""

    log: Path
    good: int
    left_alone: dict[str, str]
    paths: dict[str, Path]


def make_bad(log: Path, number: int, damage: Callable[[Any], object]) -> Path:
    ring = ring_for(log, ring_bytes=256 << 10)
    record(ring, 0, 3)
    path = ring.path.with_name(f"bad-{number}.ring")
    path.write_bytes(ring.path.read_bytes())
    ring.close()
    ring.path.unlink()
    damage(_Copy(path, ring.layout))
    return path


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    log = tmp_path_factory.mktemp("bad") / "log"
    paths = {
        name: make_bad(log, number, damage) for number, (name, damage) in enumerate(BAD.items())
    }
    good = ring_for(log)
    record(good, 0, 3)
    with collecting(log, detail="full") as collector:
        for first in (3, 4):
            collector.drain()
            record(good, first, first + 1)
        collector.drain()
        left_alone = {each.path: each.reason for each in collector._status().left_alone}
    good.close()
    return Seen(log, good.engine, left_alone, paths)


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_and_told(seen: Seen, name: str) -> None:
    assert seen.left_alone.get(str(seen.paths[name]))
    assert seen.paths[name].exists()


def test_nothing_of_them_is_in_the_log(seen: Seen) -> None:
    for table in ("steps", "request_events", "step_requests"):
        assert rows(seen.log, f"SELECT DISTINCT engine FROM {table}") == [(seen.good,)]
    assert len(list(seen.log.glob("*.duckdb"))) == 2, "no other day came into being"


def test_the_good_one_is_drained_as_ever(seen: Seen) -> None:
    assert rows(seen.log, "SELECT step FROM steps ORDER BY 1") == [(n,) for n in range(5)]


def test_a_ring_that_is_cut_while_it_is_read_costs_that_ring(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cut, good = ring_for(log), ring_for(log)
    for ring in (cut, good):
        record(ring, 0, 3)
    with collecting(log) as collector:
        collector.drain()
        # To cut the file itself would kill this process, which is the engine here.
        collector._rings[cut.path].reader._size += 1
        record(good, 3, 5)
        collector.drain()
        left_alone = collector._status().left_alone
    assert [each.path for each in left_alone] == [str(cut.path)]
    assert "was cut" in left_alone[0].reason
    assert rows(log, "SELECT count(*) FROM steps WHERE engine = ?", [good.engine]) == [(5,)]
    for ring in (cut, good):
        ring.close()

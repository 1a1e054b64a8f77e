"""Many engines at once: they come, go, die and start anew, and none costs another a row."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from telemetry.ring import RingRecorder
from telemetry.vocabulary import EventKind
from tests.telemetry.collector.builders import RINGS, collecting, record, ring_for, rows

_SHORT_LIFE = """
import os, signal, sys
from pathlib import Path
from tests.telemetry.collector.builders import record, ring_for
for number in range(3):
    ring = ring_for(Path(sys.argv[1]))
    record(ring, 0, 10 + number)
    print(ring.engine, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def died(log: Path) -> list[tuple[int, int]]:
    kind = f"kind = {EventKind.engine_died:d}"
    return rows(log, f"SELECT engine, count(*) FROM request_events WHERE {kind} GROUP BY 1")


def test_engines_come_and_go_while_others_run(tmp_path: Path) -> None:
    """Thirty rounds in which one of up to ten engines starts, writes or says good-bye."""
    log, chance = tmp_path / "log", random.Random(5)
    alive: dict[int, RingRecorder] = {}
    written: dict[int, int] = {}
    with collecting(log) as collector:
        for _ in range(30):
            if len(alive) < 10:
                ring = ring_for(log)
                alive[ring.engine], written[ring.engine] = ring, 0
            for engine in chance.sample(sorted(alive), k=min(3, len(alive))):
                record(alive[engine], written[engine], written[engine] + 7)
                written[engine] += 7
            if chance.random() < 0.5:
                alive.pop(chance.choice(sorted(alive))).close()
            collector.drain()
        num_attached = len(collector._rings)
    assert num_attached == len(alive)
    counts = rows(log, "SELECT engine, count(*), count(DISTINCT step) FROM steps GROUP BY 1")
    assert sorted(counts) == sorted((e, n, n) for e, n in written.items() if n)
    assert died(log) == []
    for ring in alive.values():
        ring.close()


def test_engines_that_are_killed_end_while_others_go_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    with collecting(log) as collector:
        collector.drain()
        done = subprocess.run(
            [sys.executable, "-c", _SHORT_LIFE, str(log)],
            capture_output=True,
            text=True,
            check=False,
        )
        record(ring, 0, 5)
        collector.drain()
        record(ring, 5, 9)
        collector.drain()
    killed = [int(line) for line in done.stdout.split()]
    assert sorted(died(log)) == sorted((engine, 1) for engine in killed)
    counts = dict(rows(log, "SELECT engine, count(*) FROM steps GROUP BY 1"))
    assert counts == {ring.engine: 9, **{e: 10 + n for n, e in enumerate(killed)}}
    assert [path.name for path in (tmp_path / RINGS).iterdir()] == [ring.path.name]
    ring.close()


def test_a_ring_that_is_faster_than_the_drain_starves_no_other(tmp_path: Path) -> None:
    """The fast one loses its oldest rows, counted; the slow ones lose nothing."""
    log = tmp_path / "log"
    fast, slow = ring_for(log), ring_for(log)
    capacity = fast.layout.regions["steps"].capacity
    with collecting(log) as collector:
        collector.drain()
        for number in range(4):
            record(fast, number * 2 * capacity, (number + 1) * 2 * capacity, num_dense=0)
            record(slow, number, number + 1)
            collector.drain()
    counts = dict(rows(log, "SELECT engine, count(*) FROM steps GROUP BY 1"))
    dropped = rows(
        log,
        "SELECT engine, region, sum(last_lost - first_lost + 1)::BIGINT FROM request_events "
        f"WHERE kind = {EventKind.records_dropped:d} AND region = 'steps' GROUP BY ALL",
    )
    assert counts[slow.engine] == 4
    [(engine, _, num_dropped)] = dropped
    assert engine == fast.engine
    assert num_dropped > 0
    assert counts[fast.engine] + num_dropped == 8 * capacity
    assert rows(log, "SELECT max(step) FROM steps WHERE engine = ?", [fast.engine]) == [
        (8 * capacity - 1,)
    ]
    for ring in (fast, slow):
        ring.close()

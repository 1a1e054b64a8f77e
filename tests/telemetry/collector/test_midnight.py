"""UTC midnight while readers read: no reader sees an error, every row lies in its day's file."""

from __future__ import annotations

import threading
from pathlib import Path

from telemetry.store import open_log
from telemetry.store.files import day_of
from tests.telemetry.collector.builders import (
    collector_process,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.ring.builders import dense, events, step

NS_PER_DAY = 86_400 * 1_000_000_000
NUM_MIDNIGHTS = 3
SLOW = "SELECT sum(a.range * b.range)::DOUBLE AS n FROM range(20000) a, range(2000) b"


class Reader(threading.Thread):
    """Asks again and again until it is stopped."""

    def __init__(self, log: Path, sql: str) -> None:
        super().__init__()
        self._log, self._sql = log, sql
        self.done = threading.Event()
        self.num_answers = 0
        self.errors: list[str] = []

    def run(self) -> None:
        with open_log(self._log) as opened:
            while not self.done.is_set():
                try:
                    opened.query(self._sql)
                    self.num_answers += 1
                except ValueError as error:
                    self.errors.append(str(error))


def test_readers_notice_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    midnight = ring._clock.now() // NS_PER_DAY * NS_PER_DAY
    with collector_process(log):
        wait_for_collector(log)
        readers = [Reader(log, "SELECT count(*) FROM steps"), Reader(log, SLOW)]
        for reader in readers:
            reader.start()
        for number in range(2 * NUM_MIDNIGHTS):
            day = number // 2 - NUM_MIDNIGHTS
            ts = midnight + day * NS_PER_DAY + number % 2 * (NS_PER_DAY - 1)
            ring.record_step(step(number, ts), events(number, ts), dense(number, 2))
            before = readers[1].num_answers
            wait_until(lambda n=number: rows(log, "SELECT count(*) FROM steps") == [(n + 1,)])
            wait_until(lambda n=before: readers[1].num_answers > n or readers[1].errors)
        for reader in readers:
            reader.done.set()
            reader.join()
    assert [reader.errors for reader in readers] == [[], []]
    for day in range(-NUM_MIDNIGHTS, 0):
        name = day_of(midnight + day * NS_PER_DAY)
        for kind in ("", ".dense"):
            assert (log / f"{name}{kind}.duckdb").exists()
    first_day = day_of(midnight - NUM_MIDNIGHTS * NS_PER_DAY)
    for path in log.glob("*.duckdb"):
        if not path.name.startswith(first_day):
            path.unlink()
    assert rows(log, "SELECT step FROM steps ORDER BY 1") == [(0,), (1,)]
    ring.close()

"""A collector's memory does not grow with what it has written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_MANY_FLUSHES = """
import json, sys
from pathlib import Path
from telemetry.ring.header import resident_bytes
from tests.telemetry.collector.builders import collecting, record, ring_for
log = Path(sys.argv[1])
ring = ring_for(log)
seen = []
with collecting(log, detail="full") as collector:
    for number in range(120):
        record(ring, number * 20, number * 20 + 20, num_dense=16)
        collector.drain()
        seen.append(resident_bytes())
ring.close()
print(json.dumps(seen))
"""


def test_later_flushes_take_no_more_than_earlier_ones(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MANY_FLUSHES, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert max(seen[-20:]) < 1.15 * max(seen[20:40])

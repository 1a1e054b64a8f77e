"""An engine is judged by how long its step loop stays in a phase."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.probe.engine import LiveRing, engine_sign, live_rings
from telemetry.ring import RingState
from telemetry.vocabulary import Phase
from tests.telemetry.collector.builders import RINGS, record, ring_for

SECOND = 1_000_000_000


def ring(phase: int, seconds: float, num_steps: int = 9) -> LiveRing:
    """Returns the ring of an engine that has been in `phase` for `seconds`."""
    state = RingState(
        published=9, heartbeat_ns=0, current_step=8, phase=phase, phase_since_ns=SECOND,
        num_steps=num_steps, num_events=0, num_preemptions=0, recorder_errors=0, closed=False,
        rss_bytes=None, description_version=1,
    )  # fmt: skip
    return LiveRing(engine=1, state=state, now=SECOND + int(seconds * SECOND))


@pytest.mark.parametrize(
    ("phase", "seconds", "num_steps", "ok"),
    [
        (Phase.forward, 59.9, 9, True),
        (Phase.forward, 60.1, 9, False),
        (Phase.schedule, 60.1, 9, False),
        (99, 60.1, 9, False),  # a phase of a newer version
        (Phase.idle, 3600.0, 9, True),
        (Phase.forward, 3600.0, 0, None),  # loading the model, measuring the memory
        (Phase.forward, -5.0, 9, True),
    ],
)
def test_a_phase_may_not_last(phase: int, seconds: float, num_steps: int, ok: bool | None) -> None:
    assert engine_sign(ring(phase, seconds, num_steps), 60.0).ok is ok


def test_a_stuck_engine_is_named_with_where_it_stands() -> None:
    assert engine_sign(ring(Phase.forward, 75.0), 60.0).text == (
        "engine 0000000000000001: step 8 is in phase forward for 75.0 s, more than 60 s: "
        "it stands still"
    )


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    return tmp_path / "log"


def test_the_rings_of_running_engines_are_found(log: Path) -> None:
    bound, free = ring_for(log), ring_for(log, bound=False)
    other = ring_for(log.with_name("other"))
    Path(log.parent / RINGS / "damaged.ring").write_bytes(b"no ring")
    assert {found.engine for found in live_rings(log)} == {bound.engine, free.engine}
    for each in (bound, free, other):
        each.close()


def test_an_engine_that_said_good_bye_is_not_judged(log: Path) -> None:
    ring_for(log).close()
    assert list(live_rings(log)) == []


def test_the_clock_of_a_live_ring_is_the_engines(log: Path) -> None:
    ring = ring_for(log)
    record(ring, 0, 2)
    (found,) = live_rings(log)
    assert 0 <= found.now - found.state.phase_since_ns < 60 * SECOND
    ring.close()


def test_an_engine_is_probed_without_duckdb() -> None:
    code = (
        "import sys; sys.modules['duckdb'] = sys.modules['pyarrow'] = None\n"
        "from stepscope import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "doctor", "--log", "nowhere", "--probe", "engine"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith("– no engine")) == (0, True), done.stderr

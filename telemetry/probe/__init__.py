"""`stepscope doctor --probe`: does what is recorded here get on? For Kubernetes, Docker, cron.

It judges by progress, not by processes. An engine stands still when one phase of its step loop
lasts too long; without work it is in phase idle, which may last. A collector stands still when the
rings hold commits and none of them reaches the log while somebody looks. What cannot be known
passes, and says so: a restart would not help.

Its tour: `engine` judges engines, `collector` the collector, `sign` is what they say.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from telemetry.probe.engine import STALL_SECONDS, engine_sign, live_rings
from telemetry.probe.sign import Sign, exit_code, report

__all__ = ["PARTS", "STALL_SECONDS", "Part", "Sign", "exit_code", "probe", "report"]

Part: TypeAlias = Literal["all", "engine", "collector"]
PARTS: tuple[Part, ...] = get_args(Part)


def probe(
    log: Path,
    part: Part,
    *,
    stall_seconds: float = STALL_SECONDS,
) -> list[Sign]:
    """Returns the signs of progress of the engines that write to `log`, and of its collector."""
    signs: list[Sign] = []
    rings = list(live_rings(log))
    if part in ("all", "engine"):
        signs += [engine_sign(ring, stall_seconds) for ring in rings]
        if not rings:
            signs.append(Sign(None, "no engine that runs is recorded here: none could be judged"))
    if part in ("all", "collector"):
        from telemetry.probe.collector import collector_sign, drained_commits  # with DuckDB

        published = {ring.engine: ring.state.published for ring in rings}
        signs.append(
            collector_sign(
                published, partial(drained_commits, log), sleep=time.sleep, clock=time.monotonic
            )
        )
    return signs

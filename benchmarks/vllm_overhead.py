"""What the plug-in costs a running vLLM: µs a step, recorded or not, in turns inside one server.

    python -m benchmarks.vllm_overhead [--workload NAME ...] [--max-rounds N] [--json FILE]

Each workload has a server of its own, as two servers differ by more than recording costs. Inside
its engine core recording is turned on and off every 64 steps, in random order within each pair of
blocks; off is vLLM's own code. Two clocks: the thread's CPU in `schedule()` and
`update_from_output()` together, and the wall's from one step to the next. Rounds go on until both
intervals are narrow enough, or for as many as are allowed. No collector runs beside it.

The engine core has a processor core for itself, as on a machine with GPUs; API and worker share the
rest. With `--shared-core` the worker's forward pass runs on the engine core's processor core and
empties its caches in each step: then everything that the scheduler does costs two to four times as
much, recorded or not.

The goal is 25 µs a step with 64 waiting requests, or 0.5 % of a step where that is more. It needs
the vLLM of `tests.vllm_venv` (`STEPSCOPE_VLLM_PYTHON` names another).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.attaching import switch
from benchmarks.attaching.differences import Comparison, Difference, compare, states_of
from benchmarks.attaching.workloads import WORKLOADS, Requests, Workload
from engine.runner.tiny_llama import tiny_llama
from telemetry.ring import ring_directories
from tests.vllm_venv import vllm_python
from tests.whole_line.vllm import plugin
from tests.whole_line.vllm.adapters import write_adapter
from tests.whole_line.vllm.load import Body, completion, post_all
from tests.whole_line.vllm.processes import descendants_of, pin_threads, title_of
from tests.whole_line.vllm.server import MODEL_NAME, VllmServer, serving, wait_until

GOAL_US = 25.0
GOAL_SHARE = 0.005
CPU_HALF_WIDTH_US = 2.0
"""Half an interval that is narrow enough to speak of the goal."""
WALL_HALF_WIDTH_SHARE = 0.0025
"""The same of a step by the wall's clock, as a part of it: half of the goal."""
ADAPTERS = ("ada", "bert")


def measure(
    workload: Workload, python: Path, wheel: Path, max_rounds: int, *, shares_core: bool
) -> Comparison | None:
    """Returns what a workload gave in a server of its own; says on standard error how far it is."""
    with tempfile.TemporaryDirectory() as name, room_for_rings() as rings:
        folder = Path(name)
        site, measured = folder / "site", folder / "measured"
        measured.mkdir()
        plugin.install(python, wheel, site)
        plugin.add_plugin(site, Path(switch.__file__), "switch")
        environment = {
            "PYTHONPATH": str(site),
            "STEPSCOPE_LOG": str(folder),
            "STEPSCOPE_RING_DIR": str(rings),
            "RECORDING_SWITCH": str(measured),
        }
        flags = [*workload.flags, *adapter_flags(workload, folder)]
        output = folder / "vllm.log"
        with serving(python, tiny_llama(), output, flags, environment) as server:
            if not shares_core:
                free_the_engines_core(server)
            return rounds(workload, server, measured, max_rounds)


def free_the_engines_core(server: VllmServer) -> None:
    """Moves the worker off the engine core's processor core, where there is another."""
    cores = sorted(os.sched_getaffinity(0))
    for pid in descendants_of(server.process.pid):
        if title_of(pid).startswith("VLLM::Worker") and len(cores) > 1:
            pin_threads(pid, set(cores[1:]))


def rounds(
    workload: Workload, server: VllmServer, measured: Path, max_rounds: int
) -> Comparison | None:
    """Plays a workload again and again until its intervals are narrow enough."""
    found = None
    for number in range(1, max_rounds + 1):
        asyncio.run(play(workload, server, seed=number))
        wait_until(server.is_idle, 60)
        (file,) = measured.glob("*.jsonl")
        waiting = workload.waiting.number if workload.waiting else 0
        found = compare(file.read_text().splitlines(), workload.running.number, waiting)
        if found is not None:
            print(f"{workload.name}, round {number}: {told(found)}", file=sys.stderr, flush=True)
            if is_narrow(found):
                break
        else:
            seen = states_of(file.read_text().splitlines())
            print(f"{workload.name}, round {number}: never steady; seen {seen}", file=sys.stderr)
    return found


async def play(workload: Workload, server: VllmServer, seed: int) -> None:
    """Has the running requests run to their end, with the waiting ones behind them till then."""
    running = asyncio.create_task(post_all(server.url, bodies(workload.running, 1000 * seed)))
    wanted = workload.running.number
    while await asyncio.to_thread(server.metric, "vllm:num_requests_running") < wanted:
        await asyncio.sleep(0.05)
    waiting = None
    if workload.waiting is not None:
        waiting = asyncio.create_task(
            post_all(server.url, bodies(workload.waiting, 1000 * seed + 500))
        )
    results = await running
    if waiting is not None:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
    failures = {result.failure for result in results} - {None}
    if failures:
        raise RuntimeError(f"{workload.name}: requests failed: {failures}\n{server.last_words()}")


def bodies(requests: Requests, seed: int) -> list[Body]:
    """Returns the requests of one round; no two share a prompt."""
    more = {"model": requests.adapter or MODEL_NAME}
    return [
        completion(seed + n, requests.num_prompt_tokens, requests.max_tokens) | more
        for n in range(requests.number)
    ]


def adapter_flags(workload: Workload, folder: Path) -> list[str]:
    """Returns the flags that name the adapters, which are written first; none without adapters."""
    if workload.running.adapter is None:
        return []
    written = [f"{name}={write_adapter(folder / name, seed)}" for seed, name in enumerate(ADAPTERS)]
    return ["--lora-modules", *written]


@contextlib.contextmanager
def room_for_rings() -> Iterator[Path]:
    """Yields a folder where an engine would put its ring."""
    places = [place.parent for place in ring_directories(None)]
    place = places[0] if places[0].is_dir() else None
    path = Path(tempfile.mkdtemp(dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def is_narrow(found: Comparison) -> bool:
    """Whether both intervals say enough."""
    return (
        found.cpu.half_width <= CPU_HALF_WIDTH_US
        and found.wall.half_width <= WALL_HALF_WIDTH_SHARE * found.wall.off
    )


def goal_us(found: Comparison) -> float:
    """Returns the most that recording a step of this length may cost."""
    return max(GOAL_US, GOAL_SHARE * found.wall.off)


def told(found: Comparison) -> str:
    """Returns a comparison in a line."""
    return (
        f"{found.num_steps:,} steps; scheduler's CPU {_told(found.cpu)}; step {_told(found.wall)}"
    )


def _told(difference: Difference) -> str:
    return (
        f"{difference.off:,.0f} µs, recorded {difference.mean:+.1f} "
        f"({difference.low:+.1f} to {difference.high:+.1f}; median {difference.median:+.1f})"
    )


def as_json(workload: Workload, found: Comparison | None) -> dict[str, Any]:
    """Returns a row of the JSON; without numbers where nothing was measured."""
    row: dict[str, Any] = {"workload": workload.name, "summary": workload.summary}
    if found is None:
        return row
    return (
        row | asdict(found) | {"goal_us": goal_us(found), "met": found.cpu.high <= goal_us(found)}
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--workload", action="append", choices=names, help="one of them (all)")
    parser.add_argument(
        "--shared-core", action="store_true", help="leave engine core and worker on one core"
    )
    parser.add_argument("--max-rounds", type=int, default=8, help="of each workload (8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found as JSON")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the comparison; exit code 1 where a goal is missed or nothing was measured."""
    args = parse(argv)
    python = vllm_python()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        wheel = plugin.build_wheel(python, Path(folder))
        for workload in WORKLOADS:
            if args.workload and workload.name not in args.workload:
                continue
            found = measure(workload, python, wheel, args.max_rounds, shares_core=args.shared_core)
            rows.append(as_json(workload, found))
            print(f"{workload.name} ({workload.summary})")
            print("  nothing was measured" if found is None else f"  {told(found)}")
            if found is not None:
                met = "met" if rows[-1]["met"] else "MISSED"
                print(f"  goal: at most {goal_us(found):.0f} µs of CPU a step: {met}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0 if all(row.get("met") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

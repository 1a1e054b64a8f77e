"""The same storm on our engine and on a stock vLLM: one trace, one model, one pool, two logs.

    python -m benchmarks.same_storm [--times N] [--json FILE]

The trace is the preset `demo`: 84 requests of 64 tokens in and 160 out, by 28 clients, to a pool
that holds nine of them. Each engine serves the tiny Llama in bfloat16 with the same flags, and is
recorded in the same way: by itself, or by the plug-in. Both logs are then asked the same questions.

Who comes in which step depends on the clients, so neither engine repeats itself exactly; with
`--times` each plays the storm as often and every number is given for each. The exact comparison is
the last row: each log is replayed by our scheduler, with its arrivals by step; it says in how many
steps that decided differently from the engine that was recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from diagnose.diagnosis import diagnose
from engine.runner.tiny_llama import tiny_llama
from engine.workload.presets import find_preset
from engine.workload.replay import ReplayOptions, replay
from telemetry.collector import start_collector, stop_collector
from telemetry.store import open_log
from tests.vllm_venv import vllm_python
from tests.whole_line.vllm import plugin
from tests.whole_line.vllm.replaying import differences
from tests.whole_line.vllm.server import MODEL_NAME, serving, wait_until

FLAGS = (
    *("--num-gpu-blocks-override", "64", "--max-num-seqs", "32", "--max-model-len", "1024"),
    *("--max-num-batched-tokens", "2048"),
)
OUR_FLAGS = (
    *("--served-model-name", MODEL_NAME, "--block-size", "32", "--dtype", "bfloat16"),
    *("--no-collector", "--port", "0"),
)
READY = "ready at "
NUM_CLIENTS = 28
VOCAB_SIZE = 256

NUMBERS = """
SELECT
  (SELECT count(*) FROM request_finishes) AS "requests finished",
  (SELECT count(*) FROM preemptions) AS "preemptions",
  (SELECT count(*) FROM preemptions WHERE cause = 'kv_full') AS "- for want of KV blocks",
  (SELECT count(DISTINCT request) FROM preemptions) AS "requests evicted",
  (SELECT count(*) FROM preemptions WHERE beneficiary = request) AS "evicted themselves",
  (SELECT sum(num_computed_tokens_lost)::BIGINT FROM preemptions) AS "tokens lost",
  (SELECT sum(num_tokens_recomputed)::BIGINT FROM preemptions) AS "- recomputed",
  (SELECT sum(num_tokens_regained_from_prefix_cache)::BIGINT FROM preemptions)
    AS "- found in the prefix cache",
  (SELECT sum(num_scheduled_tokens)::BIGINT FROM steps) AS "tokens scheduled",
  (SELECT sum(num_repeats)::BIGINT FROM steps WHERE num_scheduled_tokens > 0) AS "working steps",
  (SELECT max(num_waiting) FROM steps) AS "most waiting"
"""
STOPS = """
SELECT stop_reason, sum(num_repeats)::BIGINT AS num_steps
FROM admission_stops WHERE num_waiting > 0 GROUP BY stop_reason ORDER BY num_steps DESC
"""

Engine = Callable[[Path], AbstractContextManager[str]]


@contextlib.contextmanager
def our_engine(folder: Path) -> Iterator[str]:
    """Runs `stepscope serve` and yields its address."""
    command = [sys.executable, "-m", "stepscope", "serve", str(tiny_llama())]
    process = subprocess.Popen(
        [*command, "--log", str(folder / "log"), *FLAGS, *OUR_FLAGS],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = (line.removeprefix(READY).strip() for line in process.stdout if READY in line)
        url = next(said, None)
        if url is None:
            raise RuntimeError("our engine ended before it was ready: its words stand above")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def stock_vllm(python: Path, site: Path) -> Engine:
    """Returns what runs a recorded vLLM and yields its address."""

    @contextlib.contextmanager
    def running(folder: Path) -> Iterator[str]:
        environment = {
            "PYTHONPATH": str(site),
            "STEPSCOPE_LOG": str(folder / "log"),
            "STEPSCOPE_RING_DIR": os.environ["STEPSCOPE_RING_DIR"],
        }
        output = folder / "vllm.log"
        with serving(python, tiny_llama(), output, FLAGS, environment) as server:
            yield server.url

    return running


def play(engine: Engine) -> dict[str, Any]:
    """Has an engine go through the storm; returns what its log says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, rings = folder / "log", folder / "rings"
        log.mkdir()
        rings.mkdir()
        os.environ["STEPSCOPE_RING_DIR"] = str(rings)
        start_collector(log, linger_seconds=600)
        try:
            with engine(folder) as url:
                options = ReplayOptions(concurrency=NUM_CLIENTS, vocab_size=VOCAB_SIZE)
                report = asyncio.run(replay(url, find_preset("demo").plan(seed=0), options))
            if not report.is_complete:
                raise RuntimeError(f"requests failed: {report.failures}")
            wait_until(lambda: not list(rings.glob("*.ring")), 30)
            return {"seconds": round(report.duration_seconds, 1)} | asked(log)
        finally:
            stop_collector(log)


def asked(log: Path) -> dict[str, Any]:
    """Returns the answers of one log."""
    with open_log(log) as opened:
        (numbers,) = opened.query(NUMBERS).to_pylist()
        stops = opened.query(STOPS).to_pylist()
        (engine,) = diagnose(opened).engines
        num_different = len({step for step, _ in differences(opened, engine.scope.engine)})
    account = engine.accounting
    waited = {f"steps ended by {row['stop_reason']}": row["num_steps"] for row in stops}
    return {
        **numbers,
        "- part of it recomputed": f"{account.work.recomputed_ratio or 0:.1%}",
        **waited,
        "unattributed": account.unattributed,
        "the identity holds": account.loss.identity_holds,
        "verdict": engine.verdict.rule,
        "steps that a replay decides differently": num_different,
    }


def table(sides: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Returns a Markdown table, a column an engine; several runs stand beside each other."""
    names = list(dict.fromkeys(name for runs in sides.values() for run in runs for name in run))
    lines = [f"| | {' | '.join(sides)} |", f"|---|{'---|' * len(sides)}"]
    for name in names:
        cells = [", ".join(said(run.get(name)) for run in runs) for runs in sides.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def said(value: Any) -> str:
    """Returns a value as a table has it; a dash where a log does not have it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints both logs' answers side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3, help="play it so often on each (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON")
    args = parser.parse_args(argv)
    python = vllm_python()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = folder / "site"
        plugin.install(python, plugin.build_wheel(python, folder), site)
        engines = {"our engine": our_engine, "vLLM 0.32.0": stock_vllm(python, site)}
        sides: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
        for number in range(args.times):
            for engine, running in engines.items():
                print(f"{engine}, {number + 1} of {args.times}", file=sys.stderr, flush=True)
                sides[engine].append(play(running))
    print("\n".join(table(sides)))
    if args.json:
        args.json.write_text(json.dumps(sides, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The demo: an engine under KV pressure on this machine, recorded, diagnosed.

It does what a person would do, with the commands a person would type: `serve` with a small KV pool,
a load that overfills it, `diagnose` on what was recorded. Only the load runs in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NUM_GPU_BLOCKS = 128
MAX_NUM_SEQS = 32
NUM_CLIENTS = 28
BLOCK_SIZE = 16
"""Tokens of a KV block: the engine's default."""
STOP_SECONDS = 20.0


class DemoError(ValueError):
    """A step of the demo failed; the message says which, and what the command said."""


def add_command(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Registers `demo`."""
    demo = commands.add_parser(
        "demo",
        parents=parents,
        help="run an engine under KV pressure here, record it, diagnose it",
        description="Run an engine under KV pressure on this machine, record it, diagnose it. "
        "Needs no model and no GPU; takes less than two minutes.",
    )
    demo.add_argument(
        "--detail",
        default="full",
        metavar="steps|transitions|full|sampled=N",
        help="what is kept of the run (%(default)s)",
    )
    demo.set_defaults(run=run_demo)


def run_demo(args: argparse.Namespace) -> int:
    """Runs the demo; returns 0 if it ended with a verdict."""
    log = args.log / "demo" / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    with _engine(log, args.detail) as url:
        _say(
            "1/4  engine",
            f"a tiny Llama made here, no download, {NUM_GPU_BLOCKS - 1} KV blocks   ✓",
        )
        _load(url)
    _wait_for(lambda: not (log / "collector.json").exists(), STOP_SECONDS, "the collector to end")
    _say("3/4  record", f"{log}   ✓")
    print("4/4  diagnose\n", flush=True)
    code = subprocess.run([*_stepscope("diagnose"), "--log", str(log)], check=False).returncode
    print("\n" + next_steps(log))
    return code


def next_steps(log: Path) -> str:
    """Returns what to type next: try the change, look at it, go on with the numbers."""
    return f"""\
next   stepscope whatif --log {log} --set max_num_seqs={num_held()}
       stepscope dashboard --log {log}
       stepscope diagnose --log {log} --json
       stepscope query --log {log} 'SELECT * FROM preemptions LIMIT 10'"""


def num_held() -> int:
    """Returns how many of the demo's requests the pool holds to their end."""
    from engine.workload.presets import find_preset

    preset = find_preset("demo")
    longest = preset.prompt_tokens[1] + preset.output_tokens[1]
    return (NUM_GPU_BLOCKS - 1) // -(-longest // BLOCK_SIZE)


def _load(url: str) -> None:
    """Sends the demo's requests; every client waits for its answer before it asks again."""
    from engine.workload.presets import find_preset
    from engine.workload.replay import ReplayOptions, replay
    from engine.workload.terminal import progress_bar

    preset = find_preset("demo")
    plan = preset.plan(seed=0)
    _say("2/4  load", f"{len(plan)} requests, {NUM_CLIENTS} at once, 64 tokens in, 160 out")
    with progress_bar(len(plan)) as progress:
        report = asyncio.run(replay(url, plan, ReplayOptions(concurrency=NUM_CLIENTS), progress))
    if not report.is_complete:
        raise DemoError(f"{len(plan) - report.num_answered} requests failed: {report.failures}")
    _say("", f"{report.num_answered}/{len(plan)} answered in {report.duration_seconds:.1f} s   ✓")


@contextmanager
def _engine(log: Path, detail: str) -> Iterator[str]:
    """Runs `serve` with a small pool; yields its URL, and ends it in the end."""
    process = subprocess.Popen(
        [
            *_stepscope("serve"),
            *("--log", str(log), "--port", "0", "--detail", detail, "--linger", "1"),
            *("--num-gpu-blocks-override", str(NUM_GPU_BLOCKS)),
            *("--max-num-seqs", str(MAX_NUM_SEQS), "--max-model-len", "1024"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield _url_when_ready(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=STOP_SECONDS)


def _url_when_ready(process: subprocess.Popen[str]) -> str:
    """Reads what `serve` says until it is ready.

    Raises:
        DemoError: it ended before that.
    """
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("ready at "):
            return line.removeprefix("ready at ").strip()
    raise DemoError("the engine did not start:\n" + "".join(said))


def _wait_for(condition: Any, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DemoError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)


def _stepscope(command: str) -> list[str]:
    return [sys.executable, "-m", "stepscope", command]


def _say(label: str, text: str) -> None:
    print(f"{label:<17}{text}", flush=True)

"""Plays a run and leaves its log: on a simulated clock, on a served engine, on a vLLM."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.whatif.runs import Run
from benchmarks.whatif.sending import PlayError, send_all
from benchmarks.whatif.simulated import simulated
from diagnose.reading import QueryLog
from diagnose.replay.settable import SETTINGS
from engine.runner.tiny_llama import tiny_llama
from telemetry.collector import start_collector, stop_collector
from telemetry.store import open_log
from tests.vllm_venv import vllm_python
from tests.whole_line.vllm import plugin
from tests.whole_line.vllm.server import MODEL_NAME, serving, wait_until

READY = "ready at "
END_SECONDS = 60.0
DONE = "done"
"""This file in a run's folder says that it was played to its end."""

Settings = Mapping[str, Any]


@contextlib.contextmanager
def log_of_run(run: Run, folder: Path, *, is_changed: bool) -> Iterator[QueryLog]:
    """Yields a run's log; a simulated one is played anew, the others must have been."""
    if run.engine == "simulated":
        yield simulated(run, settings_of(run, is_changed=is_changed))
        return
    with open_log(folder_of(run, folder, is_changed=is_changed) / "log") as log:
        yield log


def settings_of(run: Run, *, is_changed: bool) -> dict[str, Any]:
    """Returns the settings of a run, with its change or without."""
    name, value = run.change
    return {**run.settings, name: value} if is_changed else dict(run.settings)


def folder_of(run: Run, folder: Path, *, is_changed: bool) -> Path:
    """Returns where a run's log lies."""
    return folder / f"{run.name}-{'changed' if is_changed else 'recorded'}"


def is_played(run: Run, folder: Path, *, is_changed: bool) -> bool:
    """Whether a run was played to its end."""
    return (folder_of(run, folder, is_changed=is_changed) / DONE).exists()


def play(run: Run, folder: Path, *, is_changed: bool) -> None:
    """Plays a run, unless it has been; of a simulated one nothing is kept but that it was.

    Raises:
        PlayError: it was not played to its end, now or earlier.
    """
    own = folder_of(run, folder, is_changed=is_changed)
    if is_played(run, folder, is_changed=is_changed):
        return
    if own.exists():
        raise PlayError(f"{own} was begun and not ended: remove it to play this run anew")
    own.mkdir(parents=True)
    if run.engine != "simulated":
        _play_in_time(run, settings_of(run, is_changed=is_changed), own)
    (own / DONE).touch()


def _play_in_time(run: Run, settings: Settings, own: Path) -> None:
    """Starts a recorded engine, sends the load, and waits until its log is whole."""
    log, rings = own / "log", own / "rings"
    log.mkdir()
    rings.mkdir()
    os.environ["STEPSCOPE_RING_DIR"] = str(rings)
    start_collector(log, linger_seconds=600)
    try:
        engine = _served if run.engine == "served" else _vllm
        with engine(run, settings, own) as url:
            asyncio.run(send_all(url, run))
        wait_until(lambda: not list(rings.glob("*.ring")), END_SECONDS)
    finally:
        stop_collector(log)


def _flags(settings: Settings) -> list[str]:
    flags: list[str] = []
    for name, value in settings.items():
        flag = SETTINGS[name].flag if name in SETTINGS else f"--{name.replace('_', '-')}"
        assert flag is not None
        if isinstance(value, bool):
            flags.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            flags += [flag, str(value)]
    return flags


@contextlib.contextmanager
def _served(run: Run, settings: Settings, folder: Path) -> Iterator[str]:
    """Runs `stepscope serve` and yields its address."""
    flags = [*_flags(settings), "--served-model-name", MODEL_NAME, "--no-collector", "--port", "0"]
    if run.connector == "keeps":
        transfer = {"kv_connector": "HostMemoryConnector", "kv_role": "kv_both"}
        flags += ["--kv-transfer-config", json.dumps(transfer)]
        flags += ["--inject", f"load=delay:{run.load_seconds}"]
    command = [sys.executable, "-m", "stepscope", "serve", str(tiny_llama())]
    process = subprocess.Popen(
        [*command, "--log", str(folder / "log"), *flags], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        said = (line.removeprefix(READY).strip() for line in process.stdout if READY in line)
        url = next(said, None)
        if url is None:
            raise PlayError("our engine ended before it was ready: its words stand above")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


@contextlib.contextmanager
def _vllm(run: Run, settings: Settings, folder: Path) -> Iterator[str]:
    """Runs a recorded vLLM and yields its address."""
    python = vllm_python()
    site = folder.parent / "site"
    if not site.exists():
        plugin.install(python, plugin.build_wheel(python, folder), site)
    own = {name: value for name, value in settings.items() if name != "block_size"}
    flags = _flags(own)
    if run.connector == "brings":
        transfer = {
            "kv_connector": "SlowKVConnector",
            "kv_connector_module_path": "slow_kv_connector",
            "kv_role": "kv_both",
        }
        flags += ["--kv-transfer-config", json.dumps(transfer)]
    environment = {
        "PYTHONPATH": str(site),
        "STEPSCOPE_LOG": str(folder / "log"),
        "STEPSCOPE_RING_DIR": os.environ["STEPSCOPE_RING_DIR"],
    }
    output = folder / "vllm.log"
    with serving(python, tiny_llama(), output, flags, environment) as server:
        yield server.url

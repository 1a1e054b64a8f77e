"""Plays a run and leaves its log: on a simulated clock, on a served engine, on a vLLM."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import httpx

from benchmarks.provoking.connector import SimulatedConnector
from benchmarks.provoking.pace import Pace
from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.traffic import Call
from benchmarks.whatif.runs import Run
from diagnose.reading import QueryLog
from diagnose.replay.edits import changed_config
from diagnose.replay.settable import SETTINGS
from engine.config import EngineConfig, KVConnectorConfig
from engine.runner.tiny_llama import tiny_llama
from engine.workload.client import send_request
from engine.workload.plan import PlannedRequest
from telemetry.collector import start_collector, stop_collector
from telemetry.store import open_log
from tests.vllm_venv import vllm_python
from tests.whole_line.vllm import plugin
from tests.whole_line.vllm.server import MODEL_NAME, serving, wait_until

VOCAB_SIZE = 256
READY = "ready at "
END_SECONDS = 60.0
DRAFT_IS_RIGHT = 0.6
BROUGHT_RATIO = 0.5
"""Share of each prompt that a KV connector has."""

Settings = Mapping[str, Any]


class PlayError(RuntimeError):
    """A run that was not played to its end."""


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


def play(run: Run, folder: Path, *, is_changed: bool) -> None:
    """Plays a run, unless it has been; a simulated one is not kept."""
    own = folder_of(run, folder, is_changed=is_changed)
    if run.engine == "simulated" or (own / "done").exists():
        return
    own.mkdir(parents=True)
    log, rings = own / "log", own / "rings"
    log.mkdir()
    rings.mkdir()
    os.environ["STEPSCOPE_RING_DIR"] = str(rings)
    settings = settings_of(run, is_changed=is_changed)
    start_collector(log, linger_seconds=600)
    try:
        engine = _served if run.engine == "served" else _vllm
        with engine(run, settings, own) as url:
            asyncio.run(_send_all(url, run))
        wait_until(lambda: not list(rings.glob("*.ring")), END_SECONDS)
    finally:
        stop_collector(log)
    (own / "done").touch()


# -------------------------------------------------------------------------------- a simulated clock


def simulated(run: Run, settings: Settings) -> QueryLog:
    """Returns the log of a run of our scheduler with a scripted model."""
    known = dict(settings)
    base = EngineConfig()
    max_model_len = known.pop("max_model_len")
    config = changed_config(base, known)
    scheduler = type(config.scheduler)(
        **{
            name: getattr(config.scheduler, name)
            for name in config.scheduler.__slots__
            if name != "max_model_len"
        },
        max_model_len=max_model_len,
    )
    connector = None
    if run.load_seconds is not None:
        seconds = run.load_seconds
        connector = SimulatedConnector(
            num_tokens=lambda request: int(request.num_prompt_tokens * BROUGHT_RATIO),
            load_seconds=lambda request: seconds,
        )
    config = EngineConfig(
        scheduler=scheduler,
        cache=config.cache,
        speculation=config.speculation,
        kv_connector=None if connector is None else KVConnectorConfig(role="kv_consumer"),
    )
    calls = [_call(run, index, each) for index, each in enumerate(run.load.plan(run.seed))]
    left = iter(calls[run.clients :]) if run.clients else iter(())
    random = Random(run.seed)
    engine = Recording(
        config,
        Random(run.seed),
        pace=Pace(step_ms=run.step_ms),
        connector=connector,
        num_accepted=(lambda name, n: _num_right(random, n)) if run.num_drafts else None,
        on_end=lambda engine, number: next(left, None),
    )
    engine.send(calls[: run.clients] if run.clients else calls)
    engine.run()
    return log_of(engine)


def _num_right(random: Random, num_drafts: int) -> int:
    """Returns how many drafts are right: as often one as the next, up to the first wrong one."""
    right = 0
    while right < num_drafts and random.random() < DRAFT_IS_RIGHT:
        right += 1
    return right


def _call(run: Run, index: int, planned: PlannedRequest) -> Call:
    return Call(
        at=0.5 + planned.offset_seconds if run.clients is None else 0.005,
        num_prompt_tokens=planned.num_prompt_tokens,
        max_tokens=planned.max_tokens,
        priority=planned.priority or 0,
        shared="shared" if run.load.shared_prefix else None,
        num_shared_tokens=run.load.shared_prefix,
        adapter=f"adapter-{index % run.num_adapters}" if run.num_adapters else None,
    )


# ------------------------------------------------------------------------------------ real engines


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
    if run.load_seconds is not None:
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
    if run.load_seconds is not None:
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


async def _send_all(url: str, run: Run) -> None:
    """Sends the load as the run's clients do, and waits for every answer.

    Raises:
        PlayError: some were not answered to their end.
    """
    plan = run.load.plan(run.seed)
    async with httpx.AsyncClient(
        base_url=url,
        limits=httpx.Limits(max_connections=None),
        timeout=httpx.Timeout(300.0, pool=None),
        trust_env=False,
    ) as http:
        if run.clients is None:
            sent = [_send_at(http, run, each) for each in plan]
        else:
            left = iter(plan)
            sent = [_send_in_turn(http, run, left) for _ in range(run.clients)]
        failures = [failure for part in await asyncio.gather(*sent) for failure in part]
    if failures:
        raise PlayError(f"{len(failures)} of {len(plan)} requests failed: {failures[:3]}")


async def _send_at(http: httpx.AsyncClient, run: Run, planned: PlannedRequest) -> list[str]:
    await asyncio.sleep(planned.offset_seconds)
    return await _send(http, run, planned)


async def _send_in_turn(
    http: httpx.AsyncClient, run: Run, left: Iterator[PlannedRequest]
) -> list[str]:
    failures = []
    for planned in left:
        failures += await _send(http, run, planned)
    return failures


async def _send(http: httpx.AsyncClient, run: Run, planned: PlannedRequest) -> Sequence[str]:
    num_prompt_tokens = planned.num_prompt_tokens
    body: dict[str, Any] = {
        "model": MODEL_NAME,
        "prompt": planned.token_ids(vocab_size=VOCAB_SIZE, seed=run.seed),
        "max_tokens": planned.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if planned.priority is not None:
        body["priority"] = planned.priority
    if run.engine == "vllm" and run.load_seconds is not None:
        body["kv_transfer_params"] = {
            "slow_tokens": int(num_prompt_tokens * BROUGHT_RATIO) // 32 * 32,
            "slow_seconds": run.load_seconds,
        }
    result = await send_request(http, body, num_prompt_tokens=num_prompt_tokens)
    return [] if result.failure is None else [result.failure]

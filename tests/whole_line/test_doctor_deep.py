"""`doctor --deep` against engines that run: one that is well, and one whose cache is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stepscope
from engine.core import EngineCore, NewRequest
from engine.sampling import SamplingParams
from engine.scheduler import PauseState
from tests.engine.server.in_process import make_core, serving_in_process
from tests.engine.server.server_process import read_url
from tests.whole_line.test_commands import stepscope as run_stepscope


@contextmanager
def recorded_server(log: Path) -> Iterator[str]:
    """Runs `serve` with its record and yields its address."""
    flags = ("--port", "0", "--linger", "0.5", "--scripted-step-seconds", "0")
    process = subprocess.Popen(
        [sys.executable, "-m", "stepscope", "serve", "--log", str(log), *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield read_url(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def test_a_served_engine_is_found_by_its_log_and_is_healthy(log: Path) -> None:
    with recorded_server(log) as url:
        asked = run_stepscope("doctor", "--deep", "--log", log, "--format", "json")
        sql = "SELECT api_url FROM engines"
        told = run_stepscope("query", sql, "--log", log, "--format", "json")
    assert told.returncode == 0, told.stderr
    (check,) = json.loads(asked.stdout)["deep"]
    assert (check["url"], check["verdict"], asked.returncode) == (url, "healthy", 0)
    assert check["counts"]["num_free_unhashed_blocks"] == check["counts"]["num_usable_blocks"]
    assert json.loads(told.stdout) == [{"api_url": url}]
    ended = run_stepscope("doctor", "--deep", "--log", log)
    assert ended.returncode == 3
    assert "no running engine to check" in ended.stdout


def core_with_a_running_request() -> EngineCore:
    core = make_core()
    core.add_request(
        NewRequest(
            request_id="a", prompt_token_ids=range(12), sampling=SamplingParams(max_tokens=50)
        )
    )
    core.step()
    core.scheduler.set_pause(PauseState.PAUSED_ALL)
    return core


def swap_the_first_two_keys(core: EngineCore) -> None:
    """Puts the keys of two held blocks the wrong way round; pool and index still agree."""
    pool, held = core.scheduler.kv.pool, (1, 2)
    keys = [pool.books().keys[block] for block in held]
    for block in held:
        pool.uncache(block)
    for block, key in zip(held, reversed(keys), strict=True):
        assert key is not None
        pool.cache(block, key)


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_wrong_key_in_a_live_cache_is_found(
    log: Path, capsys: pytest.CaptureFixture[str], is_broken: bool
) -> None:
    core = core_with_a_running_request()
    if is_broken:
        swap_the_first_two_keys(core)
    with serving_in_process(core) as url:
        code = stepscope.main(["doctor", "--deep", "--log", str(log), "--url", url])
    said = capsys.readouterr().out
    assert code == (1 if is_broken else 0)
    assert "1 running, 0 waiting" in said
    wrong = "block 1 (number 0 of request 0): its key is not that of the tokens in it"
    assert (wrong in said) is is_broken

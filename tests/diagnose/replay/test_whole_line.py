"""An engine's run through ring, collector and DuckDB: its replay takes the same decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diagnose.replay import Decided, Replay, read_inputs
from engine.core import EngineCore, NewRequest
from engine.identity import DeviceMemory, describe, introduce
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from telemetry.records import RunClock
from telemetry.store import open_log
from telemetry.vocabulary import FinishReason
from tests.decisions import decisions_of
from tests.engine.builders import config
from tests.telemetry.collector.builders import collecting, ring_for

EOS = 2
NUM_REQUESTS = 24


def token(request_id: str, n: int) -> int:
    """Every third request ends early; all others say the same."""
    return EOS if int(request_id) % 3 == 0 and n == 5 else 10 + n


def arrive(core: EngineCore, number: int) -> None:
    prompt = [*range(100, 108), number % 4, *range(number % 7)]
    sampling = SamplingParams(max_tokens=12)
    core.add_request(NewRequest(request_id=str(number), prompt_token_ids=prompt, sampling=sampling))


def test_a_storm_is_replayed_from_its_log(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", RunClock.start()
    ring = ring_for(log, clock=clock)
    settings = config(num_usable_blocks=12, max_num_seqs=6)
    row = introduce(started_ts=clock.now(), model="scripted", version=None)
    ring.describe_engine(describe(row, settings, device="cpu", memory=DeviceMemory()))
    core = EngineCore(
        settings,
        ScriptedRunner(token),
        recorder=ring,
        clock=clock.now,
        model_name="scripted",
        eos_token_ids=[EOS],
    )
    recorded: list[dict[str, Any]] = []
    with collecting(log) as collector:
        for number in range(NUM_REQUESTS):
            arrive(core, number)
            for _ in range(2):
                output = core.scheduler.schedule()
                recorded.append(decisions_of(core.scheduler, output))
                core._update(output, core._execute(output, None))
            if number % 8 == 5:
                core.abort([str(number - 1)], FinishReason.abort_client)
                collector.drain()
        while core.has_work():
            output = core.scheduler.schedule()
            recorded.append(decisions_of(core.scheduler, output))
            core._update(output, core._execute(output, None))
        ring.close()
        collector.drain()
    assert core.scheduler.num_preemptions > 5
    with open_log(log) as opened:
        replay = Replay(read_inputs(opened, ring.engine))
        again = [
            decisions_of(replay.scheduler, step.output)
            for step in replay.run()
            if isinstance(step, Decided)
        ]
    assert again == recorded
    assert replay.scheduler.num_preemptions == core.scheduler.num_preemptions

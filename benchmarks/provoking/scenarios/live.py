"""Faults of a served engine under real load, the same engine in good health, and its look-alikes.

Every run is judged twice: by the log that its collector wrote, and by its scrapes alone. Where a
fault is a matter of seconds, the engine is measured first, and the traffic is as much as takes it
several times as long as the fault needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.provoking.scenario import Scenario
from benchmarks.provoking.served import (
    Ask,
    Call,
    Clients,
    LiveRun,
    Scaled,
    Traffic,
    completion,
)
from benchmarks.soaking.features import ADAPTERS, make_adapters

AMPLE = ("--num-gpu-blocks-override", "4096")
"""A pool that no run here fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A run and what is to be found in it: by its log, and by its scrapes.

    `None` where nothing above info may be found. Without `by_scrapes` metrics cannot decide, and
    the scrapes are not judged.
    """

    run: LiveRun
    expected: str | None
    by_scrapes: bool = False
    silent: tuple[str, ...] = ()

    def scenarios(self) -> tuple[Scenario, ...]:
        """Returns a scenario for each witness that can tell."""
        by_log = Scenario(
            name=self.run.name,
            source="engine",
            expected=self.expected,
            provoke=self.run.log,
            silent=self.silent,
        )
        if not self.by_scrapes:
            return (by_log,)
        by_scrapes = Scenario(
            name=f"{self.run.name}-scraped",
            source="scrapes",
            expected=self.expected,
            provoke=self.run.scrapes,
            silent=self.silent,
        )
        return by_log, by_scrapes


def _completions(
    random: Random, number: float, prompt: tuple[int, int], output: tuple[int, int], **more: Any
) -> list[Call]:
    """Returns calls whose lengths are drawn from ranges."""
    return [
        Call(body=completion(random, random.randint(*prompt), random.randint(*output), **more))
        for _ in range(round(number))
    ]


def _one(calls: Sequence[Call], at_once: int) -> Traffic:
    """Returns the traffic of one group of clients."""
    return Traffic(clients=[Clients(calls, at_once)])


def _pausing(random: Random, calls: Sequence[Call], seconds: float) -> list[Call]:
    """Returns the calls with a pause before each, of so many seconds on average."""
    return [replace(call, pause_seconds=random.expovariate(1 / seconds)) for call in calls]


def _always(*flags: str) -> Callable[[Random, Path], Sequence[str]]:
    return lambda random, folder: flags


# ----------------------------------------------------------------------------------------- memory


def _small_pool(random: Random, folder: Path) -> Sequence[str]:
    return ("--num-gpu-blocks-override", str(random.randint(110, 140)), "--max-num-seqs", "32")


STORM = LiveRun(
    name="storm",
    flags=_small_pool,
    traffic=lambda random, load: _one(
        _completions(random, 80 * load, (48, 80), (140, 180)), at_once=28
    ),
)
HIGH_USAGE = LiveRun(
    name="high-usage-that-fits",
    flags=_always("--num-gpu-blocks-override", "170", "--max-num-seqs", "12"),
    traffic=lambda random, load: _one(
        _completions(random, 60 * load, (56, 72), (140, 160)), at_once=11
    ),
)

# ------------------------------------------------------------------------------- slots and budgets


def _few_slots(random: Random, folder: Path) -> Sequence[str]:
    return (*AMPLE, "--max-num-seqs", str(random.randint(4, 7)))


SLOTS = LiveRun(
    name="few-slots",
    flags=_few_slots,
    traffic=lambda random, load: _one(
        _completions(random, 90 * load, (24, 64), (60, 100)), at_once=28
    ),
)


def _urgent_behind_long(random: Random, load: float) -> Traffic:
    long = _completions(random, 20 * load, (24, 48), (350, 500), priority=10)
    urgent = _completions(random, 20 * load, (16, 32), (8, 16), priority=0)
    return Traffic(clients=[Clients(long, 12), Clients(_pausing(random, urgent, 0.5), 2)])


INVERSION = LiveRun(
    name="urgent-behind-long",
    flags=_always(*AMPLE, "--max-num-seqs", "4", "--scheduling-policy", "priority"),
    traffic=_urgent_behind_long,
)


def _waves_of_urgent(random: Random, load: float) -> Traffic:
    """Two long requests of low priority, and urgent ones that take most of the pool in turns."""
    long = _completions(random, 2, (500, 600), (300, 400), priority=10)
    urgent = _completions(random, 50 * load, (160, 200), (60, 80), priority=0)
    return Traffic(clients=[Clients(long, 2), Clients(_pausing(random, urgent, 0.2), 6)])


CHURN = LiveRun(
    name="recomputed-for-the-urgent",
    flags=_always(
        *("--num-gpu-blocks-override", "130", "--max-num-seqs", "32"),
        *("--scheduling-policy", "priority", "--no-enable-prefix-caching"),
    ),
    traffic=_waves_of_urgent,
)


def _one_long_prompt_after_another(random: Random, load: float) -> Traffic:
    long = _completions(random, 4 * load, (3200, 3900), (4, 8))
    short = _completions(random, 50 * load, (16, 48), (8, 16))
    return Traffic(clients=[Clients(long, 1), Clients(_pausing(random, short, 0.3), 6)])


HEAD_OF_LINE = LiveRun(
    name="long-prompt-owns-the-budget",
    flags=_always(*AMPLE, "--max-num-batched-tokens", "128", "--max-num-seqs", "32"),
    traffic=_one_long_prompt_after_another,
)


PROMPTS_AT_ONCE = 4
WAVE_SECONDS = 3.0
"""How long a wave of prompts takes on this machine, and the calm before the next."""


async def _prompts_beside_decodes(random: Random, load: float, ask: Ask) -> Traffic:
    """Answers that go on all the time, and waves of cold prompts beside them.

    Four prompts share each step, a chunk of each: none owns the budget, and none waits.
    """

    def prompts(number: int) -> list[Call]:
        return _completions(random, number, (3600, 4000), (1, 2))

    took = min([await ask(prompts(PROMPTS_AT_ONCE)) for _ in range(2)])
    size = PROMPTS_AT_ONCE * ceil(WAVE_SECONDS / took)
    calls: list[Call] = []
    for _ in range(max(2, round(4 * load))):
        wave = prompts(size)
        first = [replace(each, pause_seconds=WAVE_SECONDS) for each in wave[:PROMPTS_AT_ONCE]]
        calls += [*first, *wave[PROMPTS_AT_ONCE:]]
    answers = _completions(random, 12, (16, 48), (300, 500))
    return Traffic(clients=[Clients(answers, 6, goes_on=True), Clients(calls, PROMPTS_AT_ONCE)])


STALLED_DECODES = LiveRun(
    name="prompts-beside-decodes",
    flags=_always(
        *(*AMPLE, "--max-num-seqs", "64"),
        *("--max-num-batched-tokens", "4096", "--long-prefill-token-threshold", "512"),
    ),
    traffic=Scaled(_prompts_beside_decodes),
)

# ---------------------------------------------------------------------------- adapters and grammars


def _adapters(max_loras: int) -> Callable[[Random, Path], Sequence[str]]:
    def flags(random: Random, folder: Path) -> Sequence[str]:
        make_adapters(folder)
        modules = [f"{name}={folder / name}" for name in ADAPTERS]
        slots = ("--max-loras", str(max_loras))
        return (*AMPLE, "--enable-lora", *slots, "--lora-modules", *modules)

    return flags


def _of_adapters(random: Random, load: float) -> Traffic:
    calls = [
        replace(call, body=call.body | {"model": random.choice(list(ADAPTERS))})
        for call in _completions(random, 36 * load, (16, 48), (50, 90))
    ]
    return _one(calls, at_once=16)


ADAPTERS_QUEUE = LiveRun(name="more-adapters-than-slots", flags=_adapters(1), traffic=_of_adapters)
ADAPTERS_FIT = LiveRun(
    name="adapters-that-fit", flags=_adapters(len(ADAPTERS)), traffic=_of_adapters
)


def _constrained(random: Random, **wanted: Any) -> Call:
    return Call(
        body=completion(random, 16, 24) | {"ignore_eos": False, "structured_outputs": wanted}
    )


def _with_new_schema(random: Random, num_properties: int) -> Call:
    """Returns a call whose schema nobody else sends; compiling grows with its properties.

    The bounds of a repetition would cost nothing: xgrammar keeps them as numbers.
    """
    names = {f"{random.getrandbits(48):x}": {"type": "string"} for _ in range(num_properties)}
    return _constrained(random, json={"type": "object", "properties": names})


NUM_SCHEMAS = 32
COMPILE_SECONDS = 8.0
"""How long so many new schemas take on this machine, one after the other: the last waits for it."""
MOST_PROPERTIES = 6_400


async def _new_schemas(random: Random, load: float, ask: Ask) -> Traffic:
    """New schemas at once, each as large as takes its share of the time to compile."""

    async def compiles(size: int) -> float:
        """Returns how much longer a call takes than the same once its grammar is there."""
        call = _with_new_schema(random, size)
        return await ask([call]) - await ask([call])

    size = 100
    while size < MOST_PROPERTIES:
        if min([await compiles(size) for _ in range(2)]) >= COMPILE_SECONDS / NUM_SCHEMAS:
            break
        size = size * 3 // 2
    constrained = [_with_new_schema(random, size) for _ in range(round(NUM_SCHEMAS * load))]
    others = _completions(random, 16, (16, 48), (60, 90))
    return Traffic(clients=[Clients(constrained, len(constrained)), Clients(others, 4)])


def _small_schemas(random: Random, load: float) -> Traffic:
    def small() -> Call:
        most, last = random.randint(8, 16), random.randint(4, 40)
        return _constrained(random, regex=f"[a-m]{{0,{most}}}[n-z]{{1,{last}}}")

    constrained = [small() for _ in range(round(40 * load))]
    others = _completions(random, 40 * load, (16, 48), (40, 60))
    return Traffic(clients=[Clients(constrained, 4), Clients(others, 4)])


GRAMMARS_WAIT = LiveRun(
    name="burst-of-new-schemas", flags=_always(*AMPLE), traffic=Scaled(_new_schemas)
)
GRAMMARS_FINE = LiveRun(name="small-schemas", flags=_always(*AMPLE), traffic=_small_schemas)

# --------------------------------------------------------------------------------------- connectors


def _connector(*inject: str, load_async: bool = True) -> Callable[[Random, Path], Sequence[str]]:
    transfer = {
        "kv_connector": "HostMemoryConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"load_async": load_async},
    }

    def flags(random: Random, folder: Path) -> Sequence[str]:
        seeded = [f"{each},seed={random.randrange(1000)}" for each in inject]
        faults = [word for each in seeded for word in ("--inject", each)]
        return (*AMPLE, "--kv-transfer-config", json.dumps(transfer), *faults)

    return flags


def _twice(
    random: Random,
    load: float,
    *,
    at_once: int = 4,
    patience_seconds: float | None = None,
    may_fail: bool = False,
) -> Traffic:
    """The same prompts again, once they have been stored and the local cache has been emptied."""
    calls = [
        replace(call, patience_seconds=patience_seconds)
        for call in _completions(random, 24 * load, (800, 1200), (8, 16))
    ]
    return Traffic(clients=[Clients(calls, at_once)], rounds=2, may_fail=may_fail)


LOADS_COME = LiveRun(name="loads-that-come", flags=_connector(), traffic=partial(_twice, at_once=1))
LOADS_FAIL = LiveRun(
    name="loads-that-fail",
    flags=_connector("load=fail_half:p=0.3", "load=fail:p=0.3"),
    traffic=_twice,
)
LOADS_HANG = LiveRun(
    name="loads-that-hang",
    flags=_connector("load=stall:p=0.4"),
    traffic=partial(_twice, at_once=24, patience_seconds=130.0),
)
"""Their clients leave after the time that makes it a fault."""
STEP_HANGS = LiveRun(
    name="step-that-hangs",
    flags=_connector("load=stall:p=0.2", load_async=False),
    traffic=partial(_twice, at_once=24, patience_seconds=70.0, may_fail=True),
)
"""A load that is part of a step never comes: the step loop hangs, and its heart goes on."""

# ------------------------------------------------------------------------- clients and speculation


def _hang_up(random: Random, load: float) -> Traffic:
    calls = [
        replace(call, patience_seconds=random.uniform(0.1, 1.0) if random.random() < 0.6 else None)
        for call in _completions(random, 40 * load, (16, 64), (200, 300))
    ]
    return _one(calls, at_once=10)


CLIENTS_LEAVE = LiveRun(name="clients-that-leave", flags=_always(*AMPLE), traffic=_hang_up)


def _speculating(random: Random, folder: Path) -> Sequence[str]:
    number = random.randint(4, 6)
    drafts = {"method": "ngram", "num_speculative_tokens": number, "prompt_lookup_min": 1}
    return (*AMPLE, "--max-num-seqs", "64", "--speculative-config", json.dumps(drafts))


DRAFTS_LOSE = LiveRun(
    name="drafts-on-random-text",
    flags=_speculating,
    traffic=lambda random, load: _one(
        _completions(random, 60 * load, (200, 300), (80, 120), temperature=1.0), at_once=20
    ),
)

# ------------------------------------------------------------------------------------ the front end


READING_SECONDS = 2.0
"""How long the server reads, on this machine, what is sent to it at once."""
FRONT_END_SECONDS = 20.0
"""How long the run takes at least: tens of scrapes."""


async def _long_lists_of_ids(random: Random, load: float, ask: Ask) -> Traffic:
    """Prompts that take the server longer to read than the engine, which computes nothing.

    They come in many pieces, so that the server has begun with one before it is through with
    another: what waits for it has been received.
    """
    lists = _completions(random, 8, (150_000, 250_000), (1, 1))
    took = min([await ask(lists) for _ in range(3)]) / len(lists)
    at_once = min(max(8, ceil(READING_SECONDS / took)), 64)
    number = max(40, ceil(FRONT_END_SECONDS / took))
    return _one(list(islice(cycle(lists), round(number * load))), at_once)


FRONT_END = LiveRun(
    name="long-lists-of-ids",
    flags=_always(
        *("--scripted-step-seconds", "0.002", "--num-gpu-blocks-override", "200000"),
        *("--max-model-len", "262144", "--max-num-batched-tokens", "2000000"),
        "--no-enable-prefix-caching",
    ),
    traffic=Scaled(_long_lists_of_ids),
)

# ------------------------------------------------------------------------------------------- health

CALM = LiveRun(
    name="calm",
    flags=_always(*AMPLE),
    traffic=lambda random, load: _one(
        _pausing(random, _completions(random, 60 * load, (24, 120), (30, 90)), 0.5), at_once=4
    ),
)
BUSY = LiveRun(
    name="busy",
    flags=_always(*AMPLE, "--max-num-seqs", "32"),
    traffic=lambda random, load: _one(
        _completions(random, 100 * load, (24, 120), (60, 120)), at_once=20
    ),
)

LIVE = (
    Live(run=STORM, expected="kv-preemption-pressure", by_scrapes=True),
    Live(run=SLOTS, expected="seq-slot-limit", by_scrapes=True, silent=("kv-head-of-line",)),
    Live(run=INVERSION, expected="priority-inversion"),
    Live(run=CHURN, expected="priority-recompute-churn"),
    Live(run=HEAD_OF_LINE, expected="prefill-head-of-line", silent=("kv-head-of-line",)),
    Live(run=STALLED_DECODES, expected="prefill-stalls-decode"),
    Live(run=ADAPTERS_QUEUE, expected="lora-slot-contention", by_scrapes=True),
    Live(run=GRAMMARS_WAIT, expected="grammar-wait-stall"),
    Live(run=LOADS_FAIL, expected="kv-load-failure"),
    Live(run=LOADS_HANG, expected="remote-kv-wait-stuck"),
    Live(run=STEP_HANGS, expected="worker-hang", silent=("admission-deadlock",)),
    Live(run=DRAFTS_LOSE, expected="spec-decode-unprofitable", by_scrapes=True),
    Live(run=FRONT_END, expected="frontend-cpu-bound", by_scrapes=True),
    Live(run=CALM, expected=None, by_scrapes=True),
    Live(run=BUSY, expected=None, by_scrapes=True),
    Live(run=HIGH_USAGE, expected=None, by_scrapes=True),
    Live(run=ADAPTERS_FIT, expected=None, by_scrapes=True, silent=("lora-slot-contention",)),
    Live(run=GRAMMARS_FINE, expected=None, by_scrapes=True, silent=("grammar-wait-stall",)),
    Live(run=LOADS_COME, expected=None, by_scrapes=True, silent=("remote-kv-wait-stuck",)),
    Live(run=CLIENTS_LEAVE, expected=None, by_scrapes=True, silent=("client-abort-leak",)),
)
SCENARIOS: tuple[Scenario, ...] = tuple(s for live in LIVE for s in live.scenarios())

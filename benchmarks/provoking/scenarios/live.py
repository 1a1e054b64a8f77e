"""Faults of a served engine under real load, the same engine in good health, and its look-alikes.

Every run is judged twice: by the log that its collector wrote, and by its scrapes alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.provoking.scenario import Scenario
from benchmarks.provoking.served import Call, LiveRun, Traffic, completion
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
            name=f"{self.run.name}_scraped",
            source="scrapes",
            expected=self.expected,
            provoke=self.run.scrapes,
            silent=self.silent,
        )
        return by_log, by_scrapes


def _completions(
    random: Random, number: float, prompt: tuple[int, int], output: tuple[int, int], **more: Any
) -> list[Call]:
    """Returns calls whose lengths are drawn from ranges, all due at once."""
    return [
        Call(body=completion(random, random.randint(*prompt), random.randint(*output), **more))
        for _ in range(round(number))
    ]


def _spread(random: Random, calls: Sequence[Call], seconds: float) -> list[Call]:
    """Returns the calls at random moments of so many seconds, in their order."""
    moments = sorted(random.uniform(0, seconds) for _ in calls)
    return [
        Call(body=call.body, at_seconds=at, patience_seconds=call.patience_seconds)
        for call, at in zip(calls, moments, strict=True)
    ]


def _always(*flags: str) -> Callable[[Random, Path], Sequence[str]]:
    return lambda random, folder: flags


# ----------------------------------------------------------------------------------------- memory


def _small_pool(random: Random, folder: Path) -> Sequence[str]:
    return ("--num-gpu-blocks-override", str(random.randint(110, 140)), "--max-num-seqs", "32")


STORM = LiveRun(
    name="storm",
    flags=_small_pool,
    traffic=lambda random, load: Traffic(
        calls=_completions(random, 90 * load, (48, 80), (140, 180)), at_once=28
    ),
)
PROMPTS_THAT_FIT = LiveRun(
    name="high_usage_that_fits",
    flags=_always("--num-gpu-blocks-override", "170", "--max-num-seqs", "12"),
    traffic=lambda random, load: Traffic(
        calls=_completions(random, 80 * load, (56, 72), (140, 160)), at_once=11
    ),
)

# ------------------------------------------------------------------------------- slots and budgets


def _few_slots(random: Random, folder: Path) -> Sequence[str]:
    return (*AMPLE, "--max-num-seqs", str(random.randint(4, 7)))


SLOTS = LiveRun(
    name="few_slots",
    flags=_few_slots,
    traffic=lambda random, load: Traffic(
        calls=_completions(random, 110 * load, (24, 64), (60, 100)), at_once=28
    ),
)


def _urgent_behind_long(random: Random, load: float) -> Traffic:
    long = _completions(random, 24 * load, (24, 48), (350, 500), priority=10)
    urgent = _completions(random, 24 * load, (16, 32), (8, 16), priority=0)
    return Traffic(calls=[*long, *_spread(random, urgent, 6.0)])


INVERSION = LiveRun(
    name="urgent_behind_long",
    flags=_always(*AMPLE, "--max-num-seqs", "4", "--scheduling-policy", "priority"),
    traffic=_urgent_behind_long,
)


def _long_and_urgent(random: Random, load: float) -> Traffic:
    long = _completions(random, 3, (400, 500), (400, 500), priority=10)
    urgent = _completions(random, 60 * load, (160, 240), (100, 140), priority=0)
    return Traffic(calls=[*long, *_spread(random, urgent, 9.0)])


CHURN = LiveRun(
    name="recomputed_for_the_urgent",
    flags=_always(
        *("--num-gpu-blocks-override", "200", "--max-num-seqs", "32"),
        *("--scheduling-policy", "priority", "--no-enable-prefix-caching"),
    ),
    traffic=_long_and_urgent,
)


def _one_long_prompt_after_another(random: Random, load: float) -> Traffic:
    long = _completions(random, 5 * load, (3200, 3900), (4, 8))
    short = _completions(random, 60 * load, (16, 48), (8, 16))
    return Traffic(calls=[*_spread(random, long, 6.0), *_spread(random, short, 8.0)])


HEAD_OF_LINE = LiveRun(
    name="long_prompt_owns_the_budget",
    flags=_always(*AMPLE, "--max-num-batched-tokens", "128", "--max-num-seqs", "32"),
    traffic=_one_long_prompt_after_another,
)


def _prompts_beside_decodes(random: Random, load: float) -> Traffic:
    decodes = _completions(random, 6 * load, (16, 48), (500, 700))
    prompts = _completions(random, 24 * load, (1500, 2000), (1, 2))
    return Traffic(calls=[*decodes, *_spread(random, prompts, 8.0)])


STALLED_DECODES = LiveRun(
    name="prompts_beside_decodes",
    flags=_always(*AMPLE, "--max-num-batched-tokens", "512", "--max-num-seqs", "64"),
    traffic=_prompts_beside_decodes,
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
    calls = []
    for _ in range(round(48 * load)):
        body = completion(random, random.randint(16, 48), random.randint(60, 120))
        calls.append(Call(body=body | {"model": random.choice(list(ADAPTERS))}))
    return Traffic(calls=calls, at_once=16)


ADAPTERS_QUEUE = LiveRun(name="more_adapters_than_slots", flags=_adapters(1), traffic=_of_adapters)
ADAPTERS_FIT = LiveRun(
    name="adapters_that_fit", flags=_adapters(len(ADAPTERS)), traffic=_of_adapters
)


def _with_grammar(random: Random, width: int) -> Call:
    """Returns a call whose schema nobody else sends; the wider it is, the longer it compiles."""
    body = completion(random, 16, 24)
    pattern = f"[a-m]{{0,{random.randint(width, 2 * width)}}}[n-z]{{1,{random.randint(4, 40)}}}"
    return Call(body=body | {"ignore_eos": False, "structured_outputs": {"regex": pattern}})


def _new_schemas(random: Random, load: float) -> Traffic:
    constrained = [_with_grammar(random, 8000) for _ in range(round(24 * load))]
    return Traffic(calls=[*constrained, *_completions(random, 16, (16, 48), (60, 90))])


def _small_schemas(random: Random, load: float) -> Traffic:
    constrained = [_with_grammar(random, 8) for _ in range(round(40 * load))]
    return Traffic(
        calls=_spread(random, [*constrained, *_completions(random, 40, (16, 48), (40, 60))], 6.0)
    )


GRAMMARS_WAIT = LiveRun(name="burst_of_new_schemas", flags=_always(*AMPLE), traffic=_new_schemas)
GRAMMARS_FINE = LiveRun(name="small_schemas", flags=_always(*AMPLE), traffic=_small_schemas)

# --------------------------------------------------------------------------------------- connectors


def _connector(*inject: str) -> Callable[[Random, Path], Sequence[str]]:
    transfer = {
        "kv_connector": "HostMemoryConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
    }
    faults = [word for fault in inject for word in ("--inject", fault)]
    return _always(*AMPLE, "--kv-transfer-config", json.dumps(transfer), *faults)


def _twice(random: Random, load: float, **more: Any) -> Traffic:
    calls = _completions(random, 24 * load, (128, 256), (16, 32))
    return Traffic(calls=_spread(random, calls, 2.0), rounds=2, **more)


LOADS_COME = LiveRun(name="loads_that_come", flags=_connector(), traffic=_twice)
LOADS_FAIL = LiveRun(
    name="loads_that_fail", flags=_connector("load=fail_half:p=0.3", "load=fail:p=0.3"),
    traffic=_twice,
)  # fmt: skip


def _never(random: Random, load: float) -> Traffic:
    """Some loads hang; their clients lose patience after the time that makes it a fault."""
    calls = _completions(random, 24 * load, (128, 256), (16, 32))
    patient = [Call(body=call.body, patience_seconds=130.0) for call in calls]
    return Traffic(calls=_spread(random, patient, 2.0), rounds=2)


LOADS_HANG = LiveRun(name="loads_that_hang", flags=_connector("load=stall:p=0.4"), traffic=_never)

# ------------------------------------------------------------------------- clients and speculation


def _hang_up(random: Random, load: float) -> Traffic:
    calls = _completions(random, 60 * load, (16, 64), (200, 400))
    leaving = [
        Call(body=call.body, patience_seconds=random.uniform(0.1, 1.0) if index % 3 else None)
        for index, call in enumerate(calls)
    ]
    return Traffic(calls=_spread(random, leaving, 6.0))


CLIENTS_LEAVE = LiveRun(name="clients_that_leave", flags=_always(*AMPLE), traffic=_hang_up)


def _speculating(number: int) -> Callable[[Random, Path], Sequence[str]]:
    drafts = {"method": "ngram", "num_speculative_tokens": number, "prompt_lookup_min": 1}
    return _always(*AMPLE, "--max-num-seqs", "64", "--speculative-config", json.dumps(drafts))


DRAFTS_LOSE = LiveRun(
    name="drafts_on_random_text",
    flags=_speculating(6),
    traffic=lambda random, load: Traffic(
        calls=_completions(random, 100 * load, (200, 300), (80, 120), temperature=1.0),
        at_once=24,
    ),
)

# ------------------------------------------------------------------------------------ the front end


def _bursts_of_short(random: Random, load: float) -> Traffic:
    calls = []
    for number in range(6):
        for _ in range(round(60 * load)):
            body = completion(random, 1, 1)
            words = ["".join(chr(random.randint(97, 122)) for _ in range(64)) for _ in range(40)]
            body |= {"prompt": " ".join(words), "truncate_prompt_tokens": 16}
            calls.append(Call(body=body, at_seconds=1.5 * number))
    return Traffic(calls=calls)


FRONT_END = LiveRun(name="bursts_at_the_front_end", flags=_always(*AMPLE), traffic=_bursts_of_short)

# ------------------------------------------------------------------------------------------- health

CALM = LiveRun(
    name="calm",
    flags=_always(*AMPLE),
    traffic=lambda random, load: Traffic(
        calls=_spread(random, _completions(random, 80 * load, (24, 120), (30, 90)), 8.0)
    ),
)
BUSY = LiveRun(
    name="busy",
    flags=_always(*AMPLE, "--max-num-seqs", "32"),
    traffic=lambda random, load: Traffic(
        calls=_completions(random, 120 * load, (24, 120), (60, 120)), at_once=20
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
    Live(run=DRAFTS_LOSE, expected="spec-decode-unprofitable", by_scrapes=True),
    Live(run=FRONT_END, expected="frontend-cpu-bound", by_scrapes=True),
    Live(run=CALM, expected=None, by_scrapes=True),
    Live(run=BUSY, expected=None, by_scrapes=True),
    Live(run=PROMPTS_THAT_FIT, expected=None, by_scrapes=True),
    Live(run=ADAPTERS_FIT, expected=None, by_scrapes=True, silent=("lora-slot-contention",)),
    Live(run=GRAMMARS_FINE, expected=None, by_scrapes=True, silent=("grammar-wait-stall",)),
    Live(run=LOADS_COME, expected=None, by_scrapes=True, silent=("remote-kv-wait-stuck",)),
    Live(run=CLIENTS_LEAVE, expected=None, by_scrapes=True, silent=("client-abort-leak",)),
)
SCENARIOS: tuple[Scenario, ...] = tuple(s for live in LIVE for s in live.scenarios())

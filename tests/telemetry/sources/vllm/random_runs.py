"""Random runs of vLLM's own scheduler: settings, requests and what happens to them, by a seed.

Runs in vLLM's environment. The same seed makes the same run, recorded or not: only the recorder
differs.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from telemetry.sources.vllm.compatibility import Features
from tests.telemetry.sources.vllm.lab import Lab, LabGrammar, Script, Settings

MAX_STEPS = 120


def random_settings(seed: int) -> Settings:
    """Returns the settings of a run: small pools and tight limits, every fourth with each extra."""
    r = random.Random(seed)
    extra = ("none", "drafts", "adapters", "connector", "items", "window")[seed // 4 % 6]
    is_async = seed % 2 == 1
    settings = Settings(
        policy="priority" if seed % 4 >= 2 else "fcfs",
        is_async=is_async,
        num_ahead=(2 if seed % 8 == 7 else 1) if is_async else 0,
        max_num_seqs=r.choice((3, 5, 8, 12)),
        max_num_batched_tokens=r.choice((48, 64, 128, 256)),
        max_model_len=256,
        num_blocks=r.choice((19, 24, 32, 48)),
        prefix_caching=r.random() < 0.6,
        reserve_whole_prompt=r.random() < 0.6,
        watermark=r.choice((0.0, 0.0, 0.1)),
        long_prefill=r.choice((0, 0, 0, 24)),
    )
    if r.random() < 0.2:
        settings.max_num_active_seqs = max(2, settings.max_num_seqs - 2)
    match extra:
        case "drafts":
            settings.num_drafts = 3
            settings.drafter = "eagle" if is_async else "ngram"
        case "adapters":
            settings.max_loras = 2
        case "connector":
            settings.connector_role = r.choice(("kv_both", "kv_consumer"))
            settings.load_failure_policy = r.choice(("recompute", "fail"))
        case "items":
            settings.encoder_budget, settings.encoder_cache = r.choice(((24, 48), (48, 32)))
        case "window":
            settings.windows = ((16, None), (16, 48))
    return settings


def random_scripts(seed: int, settings: Settings) -> list[Script]:
    """Returns the requests of a run; some share their first tokens."""
    r = random.Random(1000 + seed)
    shared = list(range(50_000, 50_048))
    scripts = []
    for number in range(r.randrange(6, 16)):
        own = [100_000 + 500 * number + i for i in range(r.randrange(4, 70))]
        prompt = (shared if r.random() < 0.4 else []) + own
        script = Script(
            name=f"r{number}",
            prompt=prompt,
            max_tokens=r.randrange(1, 50),
            priority=r.randrange(3),
            arrival_time=float(number),
            num_right=r.randrange(4),
        )
        script.eos_after = r.randrange(40) if r.random() < 0.3 else None
        script.has_grammar = r.random() < 0.2
        if settings.max_loras:
            script.lora = r.choice((None, 1, 2, 3))
        if settings.connector_role and r.random() < 0.6:
            script.external = 16 * r.randrange(0, (len(prompt) - 1) // 16 + 1)
            script.loads_async = r.random() < 0.6
            script.num_unknown = r.choice((0, 0, 2))
            script.keeps_blocks = r.random() < 0.3
        if settings.encoder_budget and len(prompt) > 30 and r.random() < 0.7:
            script.items = [(f"item{r.randrange(4)}-16", 8, 16)]
        scripts.append(script)
    return scripts


class RandomRun:
    """One run: requests come, clients leave, loads end or fail, operators meddle."""

    def __init__(
        self, seed: int, model_dir: Path, recorder: Any, features: Features | None = None
    ) -> None:
        settings = random_settings(seed)
        self.lab = Lab(settings, model_dir, recorder, features=features)
        self._random = random.Random(2000 + seed)
        self._pending = random_scripts(seed, settings)
        self._is_paused = False
        self.outputs: list[Any] = []
        """What the scheduler decided and brought, to be compared between runs."""

    def play(self) -> None:
        """Runs to the end, or for `MAX_STEPS`; ends what is left then."""
        lab = self.lab
        for _ in range(MAX_STEPS):
            self._meddle()
            is_over = not self._pending and not lab.in_flight and not self._is_paused
            if is_over and not lab.scheduler.has_requests():
                break
            if lab.scheduler.has_requests() or not lab.in_flight:
                truth = lab.step(throttle=self._random.random() < 0.1)
                self.outputs.append((truth.scheduled, truth.preempted, truth.waiting))
            else:
                lab.update()
        if self._is_paused:
            lab.pause("UNPAUSED")
        while lab.in_flight:
            lab.update()
        lab.abort(*list(lab.scheduler.requests))
        for name in lab.kept():
            lab.let_go(name)
        lab.step()
        while lab.in_flight:
            lab.update()
        self.outputs += [(t.sampled, t.finished) for t in lab.truth]
        lab.scheduler.shutdown()

    def _meddle(self) -> None:
        r, lab = self._random, self.lab
        while self._pending and r.random() < 0.5:
            lab.add(self._pending.pop(0))
        alive = [name for name, q in lab.scheduler.requests.items() if not q.is_finished()]
        for name in alive:
            if lab.scripts[name].has_grammar and r.random() < 0.3:
                lab.grammar_is(name, ValueError("wrong") if r.random() < 0.15 else LabGrammar())
        if alive and r.random() < 0.03:
            lab.abort(r.choice(alive))
        if r.random() < 0.03:
            self._pause(r)
        if r.random() < 0.02 and not lab.settings.connector_role:
            lab.scheduler.reset_prefix_cache(reset_running_requests=True)
        self._transfer(r)

    def _pause(self, r: random.Random) -> None:
        self._is_paused = not self._is_paused
        states = ("PAUSED_NEW", "PAUSED_ALL")
        self.lab.pause(r.choice(states) if self._is_paused else "UNPAUSED")

    def _transfer(self, r: random.Random) -> None:
        lab = self.lab
        for name in lab.loading():
            if r.random() < 0.4:
                lab.received.append(name)
                if r.random() < 0.2:
                    lab.failed.append(name)
                elif r.random() < 0.2:
                    lab.invalid.append((name, 0))
        for name in lab.kept():
            if r.random() < 0.4:
                lab.let_go(name)

"""What LoRA adapters cost a step of the tiny Llama, as ratios to the plain model in one run.

`python -m benchmarks.adapters [--rounds N]`. Each kind of batch has an engine of its own; all take
their steps in turns, in random order, on one torch thread. CPU time of the runner's `execute`.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from dataclasses import dataclass, field

import torch

from engine.config import CacheConfig, EngineConfig, LoRAConfig, SchedulerConfig
from engine.lora.module_spec import AdapterModule
from engine.lora.reading import Adaptable, LoadedAdapter, LowRankPair
from engine.lora.store import AdapterStore
from engine.request import Request
from engine.runner.model import load_model
from engine.runner.model_runner import ModelRunner
from engine.runner.tiny_llama import tiny_llama
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler

NUM_SEQS = 32
PROMPT_TOKENS = 128
NUM_PROMPTS = 4
RANK = 16
STEPS_A_TURN = 5

KINDS: dict[str, tuple[int | None, list[int | None]]] = {
    "plain model": (None, [None]),
    "adapters enabled, none in the batch": (4, [None]),
    "1 adapter, for all": (4, [0]),
    "1 adapter, for half": (4, [0, None]),
    "4 adapters": (4, [0, 1, 2, 3]),
    "4 adapters and none": (4, [0, 1, 2, 3, None]),
    "8 adapters": (8, list(range(8))),
}
"""Of a batch: slots of the engine (None is none at all), and the adapters of its requests."""


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for title, count in (
        (f"decode, {NUM_SEQS} sequences", decode),
        (f"prefill, {NUM_PROMPTS} prompts of {PROMPT_TOKENS} tokens", prefill),
    ):
        engines = {name: Engine.make(*kind) for name, kind in KINDS.items()}
        order, rng = list(engines), random.Random(1)
        for _ in range(rounds + 1):
            rng.shuffle(order)
            for name in order:
                count(engines[name])
        print_table(title, {name: engine.milliseconds[1:] for name, engine in engines.items()})


@dataclass
class Engine:
    """A scheduler and a runner, the adapters of its requests, and what its turns took a step."""

    scheduler: Scheduler
    runner: ModelRunner
    adapters: list[int | None]
    milliseconds: list[float] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    @classmethod
    def make(cls, max_loras: int | None, adapters: list[int | None]) -> Engine:
        lora = None if max_loras is None else LoRAConfig(max_loras=max_loras, max_lora_rank=RANK)
        model = load_model(tiny_llama(), dtype="float32", device="cpu", lora=lora)
        config = EngineConfig(
            scheduler=SchedulerConfig(max_loras=max_loras, max_num_seqs=NUM_SEQS),
            cache=CacheConfig(num_gpu_blocks=3000, enable_prefix_caching=False),
        )
        store = None
        if model.lora is not None:
            adaptable = model.lora.adaptable
            store = AdapterStore(
                lambda path: random_adapter(adaptable, int(path.name)), max_cpu_loras=8
            )
            for number in {each for each in adapters if each is not None}:
                store.load(AdapterModule(name=str(number), path=tiny_llama() / str(number)))
        return cls(Scheduler(config), ModelRunner(model, config, adapters=store), adapters)

    def add(self, num_tokens: int, max_tokens: int) -> None:
        number = next(self.numbers)
        adapter = self.adapters[number % len(self.adapters)]
        rng = random.Random(number)
        self.scheduler.add_request(
            Request(
                request_id=f"r{number}",
                number=number,
                prompt_token_ids=[rng.randrange(256) for _ in range(num_tokens)],
                sampling=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
                adapter=None if adapter is None else str(adapter),
            )
        )

    def step(self) -> float:
        """Returns the CPU time of the runner's part, in milliseconds."""
        output = self.scheduler.schedule()
        began = time.thread_time()
        result = self.runner.execute(output)
        took = time.thread_time() - began
        self.scheduler.update_from_output(output, result)
        return took * 1e3


def decode(engine: Engine) -> None:
    """Takes a turn of decode steps; the first fills the batch."""
    if not engine.scheduler.requests:
        for _ in range(NUM_SEQS):
            engine.add(16, 2000)
        engine.step()
    engine.milliseconds.append(statistics.fmean(engine.step() for _ in range(STEPS_A_TURN)))


def prefill(engine: Engine) -> None:
    """Takes a step of prompts that end with their first token."""
    for _ in range(NUM_PROMPTS):
        engine.add(PROMPT_TOKENS, 1)
    engine.milliseconds.append(engine.step())


def random_adapter(adaptable: Adaptable, seed: int) -> LoadedAdapter:
    """Returns an adapter of every layer."""
    generator = torch.Generator().manual_seed(seed)
    pairs = {
        name: LowRankPair(
            down=torch.randn(RANK, shape.in_features, generator=generator) * 0.02,
            up=torch.randn(RANK, shape.out_features, generator=generator) * 0.02,
        )
        for name, shape in adaptable.layers.items()
    }
    return LoadedAdapter(digest=str(seed), rank=RANK, pairs=pairs)


def print_table(title: str, milliseconds: dict[str, list[float]]) -> None:
    plain = milliseconds["plain model"]
    print(f"\n| {title} | CPU ms a step | to the plain model |\n|---|---|---|")
    for name, taken in milliseconds.items():
        ratios = [mine / theirs for mine, theirs in zip(taken, plain, strict=True)]
        low, ratio, high = interval(ratios)
        print(
            f"| {name} | {statistics.median(taken):.2f} | {ratio:.3f} ({low:.3f} to {high:.3f}) |"
        )


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Returns the median between the bounds of its 95 % interval (bootstrap)."""
    rng = random.Random(2)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(1000))
    return medians[25], statistics.median(ratios), medians[975]


if __name__ == "__main__":
    main()

"""Devices: a step that does not end, memory that runs out or is nearly claimed.

A fault of a device cannot be made without one. What is made here is what an engine writes down of
it: a step without an end, its last words, its memory profile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.provoking.importing import imported
from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, poisson
from diagnose.reading import QueryLog
from engine.identity import DeviceMemory, LifeEvents

GIB = 1 << 30
OTHER_STALLS = (
    "admission-deadlock",
    "encoder-budget-zero-progress",
    "kv-preemption-thrash",
    "remote-kv-wait-stuck",
    "kv-block-leak",
)


def _engine(attempt: Attempt, random: Random, *, end: float, **more: object) -> Recording:
    """Returns an engine with room for its traffic."""

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 250), max_tokens=about(random, 120))

    engine = Recording(settings(num_blocks=3000), random, **more)  # type: ignore[arg-type]
    engine.send(poisson(random, call, rate=2.5 * attempt.load, start=0.5, end=end))
    return engine


# -------------------------------------------------------------------------------- steps without end


def step_without_end(attempt: Attempt) -> QueryLog:
    """A step is dispatched and never comes back; the engine's heart goes on."""
    random = attempt.random
    engine = _engine(attempt, random, end=60)
    engine.run(until=random.uniform(15, 40))
    engine.hang(random.uniform(75, 400))
    return log_of(engine)


def step_that_came_back(attempt: Attempt) -> QueryLog:
    """A step takes minutes, as a collective does that waits for a rank; then all goes on."""
    random = attempt.random
    engine = _engine(attempt, random, end=40)
    at = random.uniform(10, 25)
    engine.at(at, lambda: engine.pass_ns(int(random.uniform(70, 200) * 1e9)))
    engine.run()
    return log_of(engine)


def first_step_compiles(attempt: Attempt) -> QueryLog:
    """One of the first steps takes ten seconds, as it does where kernels are compiled for it."""
    random = attempt.random
    engine = _engine(attempt, random, end=60)
    engine.run(until=1.5)
    engine.pass_ns(int(random.uniform(5, 15) * 1e9))
    engine.run()
    return log_of(engine)


def idle_for_long(attempt: Attempt) -> QueryLog:
    """Ten minutes without a request: nothing is scheduled, and nobody waits for it."""
    random = attempt.random
    engine = _engine(attempt, random, end=20)
    engine.run()
    engine.run(until=engine.seconds + random.uniform(300, 900))
    return log_of(engine)


# ------------------------------------------------------------------------------------------- memory


def out_of_memory_serving(attempt: Attempt) -> QueryLog:
    """An allocation fails in a step; the engine writes that down, and ends."""
    random = attempt.random
    share = random.choice((0.95, 0.97, 0.98))
    columns = {"device": "cuda", "gpu_memory_utilization": share}
    engine = _engine(attempt, random, end=40, columns=columns)
    engine.run(until=random.uniform(10, 35))
    life = LifeEvents(engine.tape, engine.clock)
    life.failed(_complaint(random), step=engine.scheduler.num_steps)
    return log_of(engine)


def out_of_memory_starting(attempt: Attempt) -> QueryLog:
    """An engine that served well is started anew with a larger share, and does not come up."""
    random = attempt.random
    columns = {"device": "cuda", "gpu_memory_utilization": 0.92}
    before = _engine(attempt, random, end=30, columns=columns)
    before.run()
    before.stop()
    again = Recording(
        settings(num_blocks=3000), random, engine=2, started=before.seconds + 20, is_ready=False,
        columns={"device": "cuda", "gpu_memory_utilization": random.choice((0.97, 0.98, 0.99))},
    )  # fmt: skip
    again.pass_ns(int(random.uniform(20, 60) * 1e9))
    LifeEvents(again.tape, again.clock).failed(_complaint(random))
    return log_of(before, again)


def _complaint(random: Random) -> str:
    tried, free = random.choice((64, 256, 512)), random.randint(8, 60)
    return (
        f"OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}.00 MiB. GPU 0 has a "
        f"total capacity of 79.11 GiB of which {free}.00 MiB is free."
    )


LINE = "(EngineCore pid={pid}) {level} 11-27 {time} [{place}] {text}\n"


def out_of_memory_in_its_log(attempt: Attempt) -> QueryLog:
    """Only the log of a vLLM is there: the size of its cache, and then a failed allocation."""
    random = attempt.random
    lines = [
        ("INFO", "00:59:01", "core.py:105", "Initializing a V1 LLM engine (v0.32.0)"),
        ("INFO", "00:59:31", "kv_cache_utils.py:1200", "GPU KV cache size: 201,360 tokens"),
        ("ERROR", "00:59:47", "core.py:1040", "EngineCore failed to start."),
        ("ERROR", "00:59:47", "core.py:1040", f"torch.{_complaint(random)}"),
    ]
    return _of_its_lines(attempt.folder, random, lines)


def failure_of_another_kind(attempt: Attempt) -> QueryLog:
    """An engine ends with an error that has nothing to do with memory, after it served well."""
    random = attempt.random
    engine = _engine(attempt, random, end=40, columns={"device": "cuda"})
    engine.run(until=45)
    LifeEvents(engine.tape, engine.clock).failed("RuntimeError: the tokenizer has gone", step=1)
    return log_of(engine)


def _of_its_lines(folder: Path, random: Random, lines: list[tuple[str, str, str, str]]) -> QueryLog:
    """Returns the log that an import of such lines gives."""
    pid, file = random.randint(1000, 9999), folder / "serve.log"
    file.write_text(
        "".join(
            LINE.format(pid=pid, level=level, time=time, place=place, text=text)
            for level, time, place, text in lines
        )
    )
    return imported("vllm-log", file, folder / "log")


@dataclass(frozen=True, slots=True)
class Profile:
    """How the memory of a device is shared out, as shares of the whole."""

    weights: float
    activation: float
    graphs: float
    cache: float

    def memory(self, total_bytes: int) -> DeviceMemory:
        return DeviceMemory(
            total_bytes=total_bytes,
            weights_bytes=int(self.weights * total_bytes),
            activation_bytes=int(self.activation * total_bytes),
            graph_bytes=int(self.graphs * total_bytes),
            kv_bytes=int(self.cache * total_bytes),
        )


def _with_profile(attempt: Attempt, left: float, share: float) -> QueryLog:
    random = attempt.random
    weights, activation, graphs = (
        random.uniform(*ends) for ends in ((0.2, 0.5), (0.02, 0.06), (0.01, 0.03))
    )
    profile = Profile(weights, activation, graphs, 1 - left - weights - activation - graphs)
    engine = _engine(
        attempt,
        random,
        end=30,
        memory=profile.memory(random.choice((24, 48, 80, 141)) * GIB),
        columns={"device": "cuda", "gpu_memory_utilization": share},
    )
    engine.run()
    return log_of(engine)


def memory_nearly_claimed(attempt: Attempt) -> QueryLog:
    """The engine fills nearly all of the device."""
    return _with_profile(attempt, attempt.random.uniform(0.005, 0.045), 0.97)


def memory_with_room(attempt: Attempt) -> QueryLog:
    """The default share, and room beside it."""
    return _with_profile(attempt, attempt.random.uniform(0.06, 0.1), 0.92)


def _scenario(
    provoke: Callable[[Attempt], QueryLog],
    expected: str | None,
    *silent: str,
    shown: tuple[str, ...] = (),
) -> Scenario:
    return Scenario(
        name=provoke.__name__.replace("_", "-"),
        source="scripted",
        expected=expected,
        provoke=provoke,
        silent=silent,
        shown=shown,
    )


MEMORY = ("gpu-memory-overcommit-oom", "gpu-memory-headroom")
SCENARIOS = (
    _scenario(step_without_end, "worker-hang", *OTHER_STALLS),
    _scenario(step_that_came_back, "worker-hang", *OTHER_STALLS),
    _scenario(first_step_compiles, None, "worker-hang", *OTHER_STALLS),
    _scenario(idle_for_long, None, "worker-hang", *OTHER_STALLS),
    _scenario(out_of_memory_serving, MEMORY[0], "worker-hang", "kv-pool-shrunk-by-reserve"),
    _scenario(out_of_memory_starting, MEMORY[0], "worker-hang", "kv-pool-shrunk-by-reserve"),
    _scenario(out_of_memory_in_its_log, MEMORY[0], "worker-hang", "kv-pool-shrunk-by-reserve"),
    _scenario(failure_of_another_kind, None, *MEMORY, "worker-hang"),
    _scenario(memory_nearly_claimed, None, MEMORY[0], shown=MEMORY[1:]),
    _scenario(memory_with_room, None, *MEMORY),
)

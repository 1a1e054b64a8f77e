"""Runs with hooks of the recorder that raise: runs in vLLM's environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from telemetry.recorder import ListRecorder, Recorder
from telemetry.sources.vllm.blocks import FREE_LIST_METHODS, Blocks
from telemetry.sources.vllm.journal import Journal
from telemetry.vocabulary import EventKind
from tests.telemetry.sources.vllm.lab_runs import BrokenResult
from tests.telemetry.sources.vllm.random_runs import RandomRun

SEEDS = (1, 4, 7, 10, 12, 13, 16, 19)
"""Between them they use drafts, adapters, a connector and encoder items, asynchronously too."""
HOOKS = tuple(name for name in dir(Journal) if name.startswith(("before_", "after_")))
FREE_LIST_HOOKS = tuple(f"_after_{name}" for name in FREE_LIST_METHODS)
RECORDER_METHODS = ("record_step", "record_events", "enter_phase", "count_preemptions", "close")


class BrokenError(Exception):
    """What a broken hook raises."""


def fail(*_: Any, **__: Any) -> Any:
    raise BrokenError("PROMPT TEXT")


@contextmanager
def broken(owner: type, *names: str) -> Iterator[None]:
    """Has methods of a class raise."""
    originals = {name: vars(owner).get(name) for name in names}
    for name in names:
        setattr(owner, name, fail)
    try:
        yield
    finally:
        for name, original in originals.items():
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def play_all(model_dir: Path) -> dict[str, BrokenResult]:
    """Returns what came of breaking each hook, all of them, and the recorder itself."""
    expected = {seed: _outputs(seed, model_dir, None)[0] for seed in SEEDS}
    found = {}
    for hook in HOOKS:
        with broken(Journal, hook):
            found[hook] = _compare(expected, model_dir, ListRecorder)
    for hook in FREE_LIST_HOOKS:
        with broken(Blocks, hook):
            found[hook] = _compare(expected, model_dir, ListRecorder)
    with broken(Journal, *HOOKS):
        found["all hooks"] = _compare(expected, model_dir, ListRecorder)
    for method in RECORDER_METHODS:
        recorder = type("Broken", (ListRecorder,), {method: fail})
        found[f"recorder.{method}"] = _compare(expected, model_dir, recorder)
    found["opening"] = _compare(expected, model_dir, lambda: fail)
    return found


def _compare(
    expected: dict[int, Any],
    model_dir: Path,
    make: Callable[[], Recorder | Callable[..., Any]],
) -> BrokenResult:
    is_unchanged, num_errors, num_degraded, is_off = True, 0, 0, True
    for seed in SEEDS:
        recorder = make()
        outputs, guard_is_off = _outputs(seed, model_dir, recorder)
        is_unchanged &= outputs == expected[seed]
        if isinstance(recorder, ListRecorder):
            num_errors = max(num_errors, len(recorder.errors))
            kinds = [event.kind for event in recorder.events]
            num_degraded = max(num_degraded, kinds.count(EventKind.recorder_degraded))
            is_off &= guard_is_off or len(recorder.errors) < 5
    return BrokenResult(is_unchanged, num_errors, is_off, num_degraded)


def _outputs(seed: int, model_dir: Path, recorder: Any) -> tuple[list[Any], bool]:
    run = RandomRun(seed, model_dir, recorder)
    run.play()
    hooks = getattr(run.lab.scheduler, "_stepscope", None)
    return run.outputs, hooks is None or not hooks.guard.is_on

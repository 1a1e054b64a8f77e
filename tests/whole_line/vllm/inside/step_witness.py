"""Writes down, as JSON lines, every scheduler output that vLLM's executor is given.

A general plug-in of vLLM, like the one that it bears witness about, and independent of it: it hears
of a step where the step leaves the scheduler for the model, and knows nothing of Stepscope. Names
and counts only. `STEP_WITNESS` names a folder; each engine core writes a file of its own there.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import IO, Any


def register() -> None:
    """Has the executor's steps written down; vLLM calls it in each of its processes."""
    folder = os.environ.get("STEP_WITNESS")
    if folder is None:
        return
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    witness = StepWitness(Path(folder) / f"{os.getpid()}.jsonl")
    for executor in (MultiprocExecutor, UniProcExecutor):
        executor.execute_model = witness.hearing(executor.execute_model)


class StepWitness:
    """The file of one engine core; made with the first step, as the other processes have none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def hearing(self, execute_model: Any) -> Any:
        """Returns `execute_model`, which first tells this witness what it is given."""

        @functools.wraps(execute_model)
        def heard(executor: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self._write(scheduler_output)
            return execute_model(executor, scheduler_output, *args, **kwargs)

        return heard

    def _write(self, output: Any) -> None:
        if self._file is None:
            self._file = self._path.open("w", buffering=1)
        self._file.write(json.dumps(told_of(output)) + "\n")


def told_of(output: Any) -> dict[str, Any]:
    """Returns what one scheduler output says of its requests, before any of it is computed."""
    cached = output.scheduled_cached_reqs
    computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    return {
        "scheduled": dict(output.num_scheduled_tokens),
        "computed": {name: computed[name] for name in output.num_scheduled_tokens},
        "resumed": sorted(cached.resumed_req_ids),
        "preempted": sorted(output.preempted_req_ids or ()),
        "finished": sorted(output.finished_req_ids),
    }

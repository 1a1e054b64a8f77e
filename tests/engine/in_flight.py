"""Runs with several steps in flight: a step is scheduled before those before it are taken in."""

from __future__ import annotations

from collections import deque

from engine.scheduler import ModelRunnerOutput, SchedulerOutput
from tests.engine.builders import Run


class InFlight:
    """Keeps `depth` steps of a run in flight; every token that is sampled is 7."""

    def __init__(self, run: Run, depth: int) -> None:
        self.run = run
        self.depth = depth
        self.outputs: list[SchedulerOutput] = []
        self._queue: deque[tuple[SchedulerOutput, list[str]]] = deque()

    def schedule(self) -> SchedulerOutput:
        """Decides a step and leaves it in flight."""
        output = self.run.scheduler.schedule()
        requests = self.run.scheduler.requests
        sampling = [
            name for name in output.num_scheduled_tokens if not requests[name].is_prefill_chunk
        ]
        self._queue.append((output, sampling))
        self.outputs.append(output)
        self.run.scheduler.check_integrity()
        return output

    def take_in(self, **reports: object) -> SchedulerOutput:
        """Takes in the oldest step in flight."""
        output, sampling = self._queue.popleft()
        result = ModelRunnerOutput(
            sampled_token_ids={name: [7] for name in sampling},
            **reports,  # type: ignore[arg-type]
        )
        self.run.results += self.run.scheduler.update_from_output(output, result)
        self.run.scheduler.check_integrity()
        return output

    def to_the_end(self, limit: int = 2000) -> list[SchedulerOutput]:
        """Runs until nothing is left to do, and returns all steps."""
        while self.run.scheduler.has_requests() or self._queue:
            if self.run.scheduler.has_requests():
                self.schedule()
            while len(self._queue) >= self.depth or self._is_draining():
                self.take_in()
            assert len(self.outputs) < limit, "the run does not end"
        return self.outputs

    def _is_draining(self) -> bool:
        return bool(self._queue) and not self.run.scheduler.has_requests()

    @property
    def zero_reasons(self) -> set[int]:
        """Why running requests were given nothing, in the steps that were taken in."""
        return {
            int(reason)
            for _, dense in self.run.recorder.step_requests
            if dense.zero_reason is not None
            for reason in dense.zero_reason
        }

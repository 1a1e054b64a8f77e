"""The one error of a runner's batch: the scheduler and the runner disagree."""

from __future__ import annotations


class BatchError(RuntimeError):
    """A delta contradicts the state that earlier deltas built. A bug of ours, never of a caller."""

    def __init__(self, request_id: str, problem: str) -> None:
        super().__init__(f"request {request_id!r} {problem}: scheduler and runner have diverged")
        self.request_id = request_id

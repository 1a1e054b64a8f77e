"""A runner's drafts from one step to the next: proposed after a step, verified in a later one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from engine.runner.batch_inputs import BatchInputs
from engine.runner.drafter import Drafter
from engine.runner.input_batch import InputBatch
from engine.runner.sampler import Sampler
from engine.scheduler.output import SchedulerOutput


class Drafting:
    """Asks a drafter, and keeps what drafts were drawn from until they have been verified.

    The scheduler keeps the drafts themselves. It may place fewer of them, or none, and drops those
    of a request that is preempted; then what they were drawn from is of no use any more.
    """

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._drawn_from: dict[str, torch.Tensor] = {}

    def apply(self, output: SchedulerOutput) -> None:
        """Forgets those who have left."""
        if self._drawn_from:
            for request_id in (*output.preempted_req_ids, *output.finished_req_ids):
                self._drawn_from.pop(request_id, None)

    def drawn_from(self, drafts: Mapping[str, Sequence[int]]) -> dict[str, torch.Tensor]:
        """Returns what the placed drafts were drawn from, of those that were drawn."""
        return {name: self._drawn_from[name] for name in drafts if name in self._drawn_from}

    def propose(
        self, batch: InputBatch, inputs: BatchInputs, sampler: Sampler
    ) -> dict[str, list[int]]:
        """Returns drafts behind the tokens that have just been committed, if these count."""
        drafts = self._drafter.propose(batch, inputs, sampler)
        for place in inputs.sampling_seqs.tolist():
            self._drawn_from.pop(inputs.request_ids[place], None)
        self._drawn_from.update(drafts.logits)
        return {name: ids for name, ids in drafts.token_ids.items() if name not in batch.void}

"""The seam of the drafters: who guesses a request's next tokens after each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from engine.runner.batch_inputs import BatchInputs
from engine.runner.input_batch import InputBatch
from engine.runner.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Drafts:
    """Guesses at the next tokens of some requests."""

    token_ids: dict[str, list[int]]
    logits: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """What drafts were drawn from, `[num_drafts, vocab_size]`; of requests whose drafts were not
    drawn there is nothing."""


class Drafter(Protocol):
    """Guesses next tokens; the next step verifies what the scheduler takes of them."""

    def propose(self, batch: InputBatch, inputs: BatchInputs, sampler: Sampler) -> Drafts:
        """Returns drafts of the step's sampling sequences; who has none is left out.

        Called once a step, after its tokens have been committed to the batch.

        Args:
            sampler: knows how each request wants its tokens drawn.
        """

"""A step's forward pass: as a CUDA graph where there is one that fits, else kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.lora.layers import AdapterMapping
from engine.runner.attention_backend import AttentionBackend
from engine.runner.batch_inputs import BatchInputs
from engine.runner.forward_clock import device_clock
from engine.runner.graphs import DecodeGraphs
from engine.runner.model import ForwardInputs, LoadedModel
from engine.runner.to_device import to_device
from engine.scheduler.output import GraphMode


@dataclass(frozen=True, slots=True)
class PreparedForward:
    """A forward pass whose inputs are on their way to the device.

    Attributes:
        run: launches it; gives logits `[num_rows, vocab_size]`, those that are wanted.
        graph_mode: how it is launched.
    """

    run: Callable[[], torch.Tensor]
    graph_mode: GraphMode


class ForwardPass:
    """Runs a model over the steps of its batch.

    Args:
        graphs: of its decode batches; None launches each kernel alone.
    """

    def __init__(
        self,
        model: LoadedModel,
        backend: AttentionBackend,
        *,
        graphs: DecodeGraphs | None = None,
    ) -> None:
        self.backend = backend
        self.graphs = graphs
        self.clock = device_clock(model.device)
        self._model = model

    def prepare(self, inputs: BatchInputs, adapters: AdapterMapping | None) -> PreparedForward:
        """Returns a step's forward pass, ready to run once.

        Args:
            adapters: which tokens go through which LoRA adapter; a graph knows none.
        """
        launch = None
        if self.graphs is not None and adapters is None:
            launch = self.graphs.prepare(inputs)
        if launch is not None:
            return PreparedForward(self._picking_rows(launch, inputs), GraphMode.FULL)
        device = self._model.device
        forward_inputs = ForwardInputs(
            token_ids=to_device(inputs.token_ids, device),
            positions=to_device(inputs.positions, device),
            logits_indices=to_device(inputs.logits_indices, device),
            metadata=self.backend.step(inputs),
            adapters=adapters,
        )
        return PreparedForward(lambda: self._run(forward_inputs), GraphMode.EAGER)

    def _run(self, inputs: ForwardInputs) -> torch.Tensor:
        self.clock.begin()
        logits = self._model.logits(inputs)
        self.clock.end()
        return logits

    def _picking_rows(
        self, launch: Callable[[], torch.Tensor], inputs: BatchInputs
    ) -> Callable[[], torch.Tensor]:
        """Returns what launches a graph and picks, of its row a token, those that are wanted.

        They are copied: the next launch writes where they lie, and so may the sampler.
        """
        wanted = to_device(inputs.logits_indices, self._model.device)

        def run() -> torch.Tensor:
            self.clock.begin()
            logits = launch().index_select(0, wanted)
            self.clock.end()
            return logits

        return run

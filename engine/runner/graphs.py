"""CUDA graphs of decode batches: a step's kernels are recorded once and launched together.

Launching a decode step's kernels one by one takes the host longer than the device needs to run
them; a recorded graph is one launch. It runs on the same memory each time: `DecodeBuffers` in, and
logits out that the next launch overwrites.

How kernels are recorded is a `Capturer`'s business, so that everything around it (shapes, padding,
buffers, the decision) runs on a CPU too, through `RerunCapturer`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from engine.config import EngineConfig
from engine.runner.attention_backend import AttentionBackend, GraphAttention
from engine.runner.batch_inputs import BatchInputs
from engine.runner.decode_buffers import DecodeBuffers
from engine.runner.decode_shapes import DecodeShape, DecodeShapes, pad_decodes, shapes_of
from engine.runner.model import ForwardInputs, LoadedModel

Run = Callable[[], torch.Tensor]


class GraphCaptureError(ValueError):
    """A model's forward pass cannot be recorded; the message says what is in the way."""


class Capturer(Protocol):
    """Records what a function does, to do it again on the same memory."""

    def capture(self, run: Run) -> Run:
        """Returns what repeats `run`; its result is overwritten by the next repetition.

        Raises:
            GraphCaptureError: it cannot be recorded.
        """
        ...


class RerunCapturer:
    """Stands in for CUDA graphs where there are none: it calls the function again."""

    def capture(self, run: Run) -> Run:
        """Returns the function, once it has run."""
        run()
        return run


class CudaCapturer:
    """Records CUDA graphs, all in one pool of memory.

    A graph needs the memory of its run only while it runs, and graphs run one after the other: so
    they share it, and the largest, recorded first, decides how much it is.

    Source: torch, CUDA semantics, "CUDA Graphs" (docs/source/notes/cuda.rst).
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(self, run: Run) -> Run:
        """Returns what launches the recorded graph.

        Raises:
            GraphCaptureError: the function waits for the device, which a graph cannot.
        """
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            run()  # what is made on first use is made now
            self._check_does_not_wait(run)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        gc.collect()  # a tensor that is freed while recording would spoil it
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            logits = run()

        def launch() -> torch.Tensor:
            graph.replay()
            return logits

        return launch

    def _check_does_not_wait(self, run: Run) -> None:
        """Raises where the run waits for the device: found out without spoiling a recording."""
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            run()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise GraphCaptureError(str(error).splitlines()[0]) from error
        finally:
            torch.cuda.set_sync_debug_mode(before)


@dataclass(frozen=True, slots=True)
class _Recorded:
    attention: GraphAttention
    launch: Run


class DecodeGraphs:
    """Graphs of a model's decode batches.

    Args:
        model: whose forward pass is recorded.
        backend: of its attention.
        buffers: where the graphs read their inputs.
        shapes: what to record, largest first; those that do not pay with this backend are left out.

    Raises:
        GraphCaptureError: the forward pass cannot be recorded.
    """

    def __init__(
        self,
        model: LoadedModel,
        backend: AttentionBackend,
        buffers: DecodeBuffers,
        *,
        shapes: Sequence[DecodeShape],
        capturer: Capturer,
        block_size: int,
    ) -> None:
        self._model = model
        self._buffers = buffers
        self._block_size = block_size
        self._logits: torch.Tensor | None = None
        self._recorded: dict[DecodeShape, _Recorded] = {}
        for shape in shapes:
            attention = backend.for_graph(buffers, shape)
            if attention is not None:
                self._record(shape, attention, capturer)
        self._shapes = DecodeShapes(list(self._recorded))

    @property
    def shapes(self) -> tuple[DecodeShape, ...]:
        """The shapes that there are graphs of."""
        return tuple(self._recorded)

    def prepare(self, inputs: BatchInputs) -> Run | None:
        """Returns what launches a step, its inputs in place; None where it has to go without.

        What it returns gives logits `[tokens of the shape, vocab_size]`, a row a token.
        """
        shape = self._shapes.fitting(inputs)
        if shape is None:
            return None
        decodes = pad_decodes(inputs, shape, self._block_size)
        self._buffers.fill(decodes)
        recorded = self._recorded[shape]
        recorded.attention.plan(decodes)
        return recorded.launch

    def _place_of(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns where the logits of all shapes go: each on its own would hold on to its memory.

        The largest shape comes first, and the first run of it is not recorded.
        """
        if self._logits is None:
            self._logits = torch.empty_like(logits)
        return self._logits[: len(logits)]

    def _record(self, shape: DecodeShape, attention: GraphAttention, capturer: Capturer) -> None:
        idle = pad_decodes(_nobody(self._buffers), shape, self._block_size)
        self._buffers.fill(idle)
        attention.plan(idle)
        num_tokens = shape.num_tokens
        every_token = torch.arange(num_tokens, device=self._buffers.device)

        def run() -> torch.Tensor:
            logits = self._model.logits(
                ForwardInputs(
                    token_ids=self._buffers.token_ids[:num_tokens],
                    positions=self._buffers.positions[:num_tokens],
                    logits_indices=every_token,
                    metadata=attention.step(),
                )
            )
            return self._place_of(logits).copy_(logits)

        self._recorded[shape] = _Recorded(attention, capturer.capture(run))


def shapes_to_record(config: EngineConfig) -> tuple[DecodeShape, ...]:
    """Returns the shapes that an engine's settings ask for, largest first."""
    scheduler = config.scheduler
    query_len = 1 + config.speculation.num_speculative_tokens
    sizes = config.compilation.capture_sizes(
        max_num_seqs=scheduler.max_num_seqs,
        query_len=query_len,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
    )
    query_lens = sorted({1, query_len})
    return shapes_of(sizes, max_num_seqs=scheduler.max_num_seqs, query_lens=query_lens)


def record_decodes(
    model: LoadedModel,
    backend: AttentionBackend,
    config: EngineConfig,
    capturer: Capturer,
    *,
    at_most: int | None = None,
) -> DecodeGraphs:
    """Returns the graphs that an engine's settings ask for.

    Args:
        at_most: record only so many of them, the largest.

    Raises:
        GraphCaptureError: the model's forward pass cannot be recorded.
    """
    block_size = config.cache.block_size
    shapes = shapes_to_record(config)
    buffers = DecodeBuffers(
        shapes,
        num_groups=len(model.kv_shape.groups),
        max_blocks=-(-config.scheduler.max_model_len // block_size),
        device=model.device,
    )
    return DecodeGraphs(
        model,
        backend,
        buffers,
        shapes=shapes[:at_most],
        capturer=capturer,
        block_size=block_size,
    )


def _nobody(buffers: DecodeBuffers) -> BatchInputs:
    """Returns a step without sequences."""
    num_groups, _, max_blocks = buffers.block_tables.shape
    nothing = np.zeros(0, np.int64)
    return BatchInputs(
        request_ids=(),
        rows=nothing,
        token_ids=nothing,
        positions=nothing,
        slot_mapping=np.zeros((num_groups, 0), np.int64),
        query_start=np.zeros(1, np.int64),
        seq_lens=nothing,
        block_tables=np.zeros((num_groups, 0, max_blocks), np.int32),
        sampling_seqs=nothing,
        num_drafts=nothing,
    )

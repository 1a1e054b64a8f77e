"""Times the whole engine, scheduler and sampler with it, over steps of one kind."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from benchmarks.device.limits import DeviceLimits, wait_for
from benchmarks.engine_throughput import SwitchedRecorder
from engine.compilation import AttentionBackendName, CompilationConfig
from engine.config import CacheConfig, EngineConfig, SchedulerConfig
from engine.core import EngineCore, NewRequest
from engine.runner.graphs import Capturer, CudaCapturer, RerunCapturer
from engine.runner.kernels import flash_kernel
from engine.runner.kernels.choice import ModelNeeds, maker
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import RunClock

BLOCK_SIZE = 16
FLASH_2_BLOCK_SIZE = 256

NUM_PAIRS = 8
"""Blocks of steps with recording on and off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """What is run: tokens of a prompt, decode steps to warm up and to time, tokens of a prefill.

    `block` are the steps with recording on, or off, before it is switched again.
    """

    prompt: int = 256
    warm_up: int = 8
    timed: int = 64
    prefill: int = 2048
    block: int = 16

    @property
    def decodes(self) -> int:
        """Output tokens of a request whose decodes are timed."""
        return self.warm_up + self.timed + 2

    @property
    def switched(self) -> int:
        """Output tokens of a request under which recording is switched on and off."""
        return 2 * NUM_PAIRS * self.block + 2


TINY = Lengths(prompt=8, warm_up=2, timed=4, prefill=32, block=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Steps of one kind: how long one takes, and the least that the device would need for it."""

    tokens_per_second: float
    step_seconds: float
    limit_seconds: float

    @property
    def share(self) -> float:
        """How much of what the device can do was reached, 0 to 1."""
        return self.limit_seconds / self.step_seconds


class Engine:
    """An engine with a model of random weights.

    Args:
        model: the model; several engines may share it, one after the other.
        backend: its attention kernel.
        with_graphs: whether decode batches are launched as graphs.
        max_num_seqs: requests of its largest decode batch.
        recorder: where its steps are recorded.
    """

    def __init__(
        self,
        model: LoadedModel,
        backend: AttentionBackendName,
        *,
        with_graphs: bool,
        max_num_seqs: int,
        lengths: Lengths,
        recorder: Recorder | None = None,
    ) -> None:
        self._model = model
        self._lengths = lengths
        longest = lengths.prompt + max(lengths.decodes, lengths.switched)
        max_model_len = max(lengths.prefill + 1, longest)
        block_size = block_size_of(backend, model)
        num_blocks = max_num_seqs * -(-longest // block_size) + lengths.prefill // block_size + 3
        config = EngineConfig(
            scheduler=SchedulerConfig(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=lengths.prefill,
                max_model_len=max_model_len,
            ),
            cache=CacheConfig(
                block_size=block_size, num_gpu_blocks=num_blocks, enable_prefix_caching=False
            ),
            compilation=CompilationConfig(enforce_eager=not with_graphs, attention_backend=backend),
        )
        make = maker(backend, needs_of(model, backend))
        self.runner = ModelRunner(model, config, attention=make)
        if with_graphs:
            self.runner.capture_graphs(capturer_for(model.device))
        self._core = EngineCore(
            config,
            self.runner,
            recorder=recorder or NullRecorder(),
            clock=RunClock.start().now,
            model_name=model.name,
        )
        self._names = itertools.count()

    def decode(self, num_requests: int, limits: DeviceLimits) -> Measured:
        """Returns what steps that decode so many requests take."""
        lengths = self._lengths
        with self._running(num_requests, max_tokens=lengths.decodes):
            for _ in range(lengths.warm_up):
                self._core.step()
            seconds = self._timed(lengths.timed) / lengths.timed
        context = lengths.prompt + lengths.warm_up + lengths.timed // 2
        return Measured(
            tokens_per_second=num_requests / seconds,
            step_seconds=seconds,
            limit_seconds=limits.seconds(
                num_bytes=_weights_read(self._model)
                + num_requests * context * kv_token_bytes(self._model),
                num_flops=num_requests * flops_per_token(self._model, context),
            ),
        )

    def prefill(self, limits: DeviceLimits) -> Measured:
        """Returns what a step that computes one long prompt takes."""
        num_tokens = self._lengths.prefill
        times = []
        for _ in range(4):
            self._add(num_tokens, max_tokens=1)
            times.append(self._timed(1))
        seconds = min(times[1:])
        return Measured(
            tokens_per_second=num_tokens / seconds,
            step_seconds=seconds,
            limit_seconds=limits.seconds(
                num_bytes=_weights_read(self._model),
                num_flops=num_tokens * flops_per_token(self._model, num_tokens // 2),
            ),
        )

    def pairs(self, num_requests: int, recorder: SwitchedRecorder) -> list[float]:
        """Returns, of pairs of decoding blocks, the time with recording over that without."""
        ratios = []
        with self._running(num_requests, max_tokens=self._lengths.switched):
            for pair in range(NUM_PAIRS):
                seconds = {}
                for on in (True, False) if pair % 2 else (False, True):
                    recorder.switch(on)
                    seconds[on] = self._timed(self._lengths.block)
                ratios.append(seconds[True] / seconds[False])
        return ratios

    @contextmanager
    def _running(self, num_requests: int, *, max_tokens: int) -> Iterator[None]:
        """Has requests decode inside, and runs them to their ends."""
        for _ in range(num_requests):
            self._add(self._lengths.prompt, max_tokens=max_tokens)
        begun: set[str] = set()
        while len(begun) < num_requests:
            _, results = self._core.step()
            begun |= {result.request_id for result in results}
        yield
        while self._core.has_work():
            self._core.step()

    def _add(self, num_prompt_tokens: int, *, max_tokens: int) -> None:
        vocab_size = self._model.vocab_size
        number = next(self._names)
        prompt = [(7 * i + number) % vocab_size for i in range(num_prompt_tokens)]
        self._core.add_request(
            NewRequest(
                request_id=f"r{number}",
                prompt_token_ids=prompt,
                sampling=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
            )
        )

    def _timed(self, num_steps: int) -> float:
        wait_for(self._model.device)
        began = time.perf_counter()
        for _ in range(num_steps):
            self._core.step()
        wait_for(self._model.device)
        return time.perf_counter() - began


def block_size_of(backend: AttentionBackendName, model: LoadedModel) -> int:
    """Returns the block size that a kernel is measured with: the usual one, if it can."""
    is_second = backend == "FLASH_ATTN" and model.device.type == "cuda"
    if is_second and not flash_kernel.has_third_generation(model.device):
        return FLASH_2_BLOCK_SIZE
    return BLOCK_SIZE


def needs_of(model: LoadedModel, backend: AttentionBackendName) -> ModelNeeds:
    """Returns what the model wants of a kernel."""
    return ModelNeeds(
        layers=model.layers,
        shape=model.kv_shape,
        block_size=block_size_of(backend, model),
        device=model.device,
    )


def capturer_for(device: torch.device) -> Capturer:
    """Returns what records graphs: real ones on CUDA."""
    return CudaCapturer(device) if device.type == "cuda" else RerunCapturer()


def kv_token_bytes(model: LoadedModel) -> int:
    """Returns the memory of a token's keys and values in all layers."""
    return len(model.layers) * model.kv_shape.token_bytes


def flops_per_token(model: LoadedModel, context: int) -> float:
    """Returns a token's operations: two a weight, and attention to so many others."""
    weights = _weights_read(model) / model.dtype.itemsize
    attention = sum(
        2 * layer.num_heads * (layer.key_dim + layer.value_dim) * context for layer in model.layers
    )
    return 2 * weights + attention


def _weights_read(model: LoadedModel) -> int:
    """Returns the bytes that every step reads: all weights, but of embeddings a few rows only."""
    embeddings = model.module.get_input_embeddings().weight  # type: ignore[operator]
    tied = getattr(model.module.config, "tie_word_embeddings", False)  # type: ignore[union-attr]
    return model.weights_bytes - (0 if tied else embeddings.numel() * embeddings.element_size())

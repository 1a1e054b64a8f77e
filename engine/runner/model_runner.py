"""The runner with a model: takes in the deltas, runs the forward pass, samples; each timed.

The batch is brought to the scheduler's state, the model runs over its flat inputs with paged
attention, the sampler chooses, and what it chose goes back into the batch and to the scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from engine.config import ConfigError, EngineConfig
from engine.runner.attention_metadata import AttentionMetadata
from engine.runner.batch_inputs import BatchInputs
from engine.runner.input_batch import InputBatch
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.model import ForwardInputs, LoadedModel
from engine.runner.sample_rows import SampleRows
from engine.runner.sampler import Sampler
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput
from engine.structured_output.bitmask import GrammarBitmask
from telemetry.vocabulary import Phase

PhaseHook = Callable[[Phase], None]
"""Is told which phase of a step begins."""


class ModelRunner:
    """Runs a loaded model on paged KV.

    Args:
        model: the checkpoint.
        config: its `cache` and `scheduler` give the sizes of the KV cache and of the batch.
        phase_hook: is called as the step goes from phase to phase.
        seed: of the draws of requests that bring none.

    Raises:
        ConfigError: the model cannot serve sequences of `max_model_len`, or its layers need other
            KV groups.
    """

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig,
        *,
        phase_hook: PhaseHook | None = None,
        seed: int = 0,
    ) -> None:
        scheduler, cache = config.scheduler, config.cache
        if scheduler.max_model_len > model.max_position:
            raise ConfigError(
                f"max_model_len is {scheduler.max_model_len} but {model.name} has "
                f"{model.max_position} positions: lower --max-model-len"
            )
        wanted = model.kv_groups(cache.block_size)
        if cache.kv_groups != wanted:
            raise ConfigError(
                f"the KV groups are {cache.kv_groups} but the layers of {model.name} need "
                f"{wanted}: take them from the model"
            )
        self.model = model
        self.batch = InputBatch(
            max_num_seqs=scheduler.max_num_seqs,
            max_model_len=scheduler.max_model_len,
            block_size=cache.block_size,
            num_groups=len(wanted),
        )
        self.kv_cache = PagedKVCache.allocate(
            model.kv_shape,
            num_blocks=cache.num_gpu_blocks,
            block_size=cache.block_size,
            device=model.device,
        )
        self._sampler = Sampler(eos_token_ids=model.eos_token_ids, seed=seed)
        self._phase_hook = phase_hook

    @torch.inference_mode()
    def execute(
        self, output: SchedulerOutput, bitmask: GrammarBitmask | None = None
    ) -> ModelRunnerOutput:
        """Returns the next token of each scheduled request that reached its newest token.

        Raises:
            BatchError: the deltas contradict what they said before.
        """
        began = self._enter(Phase.inputs)
        self._apply(output)
        if not output.num_scheduled_tokens:
            return ModelRunnerOutput(inputs_ns=time.monotonic_ns() - began)
        inputs = self.batch.prepare(output.num_scheduled_tokens)
        on_device = self._to_device(inputs)
        forward_began = self._enter(Phase.forward)
        logits = self.model.logits(on_device)
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)  # else the kernels' time would be sampling's
        sample_began = self._enter(Phase.sample)
        rows = self._rows(inputs)
        sampled = self._sampler.sample(logits, rows)
        self.batch.commit(inputs, sampled.token_ids)
        ended = time.monotonic_ns()
        return ModelRunnerOutput(
            sampled_token_ids=dict(zip(rows.request_ids, sampled.token_ids, strict=True)),
            logprobs=sampled.logprobs,
            inputs_ns=forward_began - began,
            forward_ns=sample_began - forward_began,
            sample_ns=ended - sample_began,
        )

    def _enter(self, phase: Phase) -> int:
        """Tells of a phase; returns when it begins (monotonic ns)."""
        if self._phase_hook is not None:
            self._phase_hook(phase)
        return time.monotonic_ns()

    def _apply(self, output: SchedulerOutput) -> None:
        self.batch.apply(output)
        for request_id in output.finished_req_ids:
            self._sampler.remove(request_id)
        for new in output.scheduled_new_reqs:
            self._sampler.add(new.request_id, new.sampling)

    def _to_device(self, inputs: BatchInputs) -> ForwardInputs:
        device = self.model.device
        return ForwardInputs(
            token_ids=torch.from_numpy(inputs.token_ids).to(device),
            positions=torch.from_numpy(inputs.positions).to(device),
            logits_indices=torch.from_numpy(inputs.logits_indices).to(device),
            metadata=AttentionMetadata.build(inputs, self.kv_cache, device),
        )

    def _rows(self, inputs: BatchInputs) -> SampleRows:
        """Returns what the rows of the step's logits are for."""
        seqs, batch = inputs.sampling_seqs.tolist(), self.batch
        rows = inputs.rows[inputs.sampling_seqs].tolist()
        num_prompt_tokens = batch.num_prompt_tokens[rows].tolist()
        num_tokens = batch.num_tokens[rows].tolist()
        return SampleRows(
            request_ids=[inputs.request_ids[i] for i in seqs],
            num_outputs=[n - p for n, p in zip(num_tokens, num_prompt_tokens, strict=True)],
            num_prompt_tokens=num_prompt_tokens,
            known_token_ids=[batch.token_ids[r, :n] for r, n in zip(rows, num_tokens, strict=True)],
            draft_token_ids=[()] * len(seqs),
        )

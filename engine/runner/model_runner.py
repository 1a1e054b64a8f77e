"""The runner with a model: takes in the deltas, runs the forward pass, samples; each timed.

The batch is brought to the scheduler's state, the model runs over its flat inputs with paged
attention, the sampler chooses, and what it chose goes back into the batch and to the scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from engine.config import ConfigError, EngineConfig
from engine.connectors.worker import KVTransferWorker, Placed, TransferReport
from engine.lora.batch import AdapterBatch
from engine.lora.layers import AdapterMapping
from engine.lora.store import AdapterStore
from engine.runner.attention_backend import GatherBackend, MakeBackend
from engine.runner.batch_inputs import BatchInputs
from engine.runner.drafter import Drafter
from engine.runner.drafting import Drafting
from engine.runner.forward_pass import ForwardPass
from engine.runner.graphs import Capturer, record_decodes
from engine.runner.input_batch import InputBatch
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.model import LoadedModel
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
        adapters: where those that requests name are found; None where there are none.
        drafter: guesses next tokens after each step; None for no speculative decoding.

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
        adapters: AdapterStore | None = None,
        drafter: Drafter | None = None,
        attention: MakeBackend = GatherBackend,
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
        self._config = config
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
        self.forward_pass = ForwardPass(model, attention(self.kv_cache))
        self._sampler = Sampler(
            vocab_size=model.vocab_size, eos_token_ids=model.eos_token_ids, seed=seed
        )
        self._drafting = None if drafter is None else Drafting(drafter)
        self._phase_hook = phase_hook
        self.transfers: KVTransferWorker | None = None
        """Moves KV from and to elsewhere; set it before the first step."""
        self.adapters: AdapterBatch | None = None
        if model.lora is not None and adapters is not None:
            self.adapters = AdapterBatch(model.lora, adapters.resident)

    @torch.inference_mode()
    def capture_graphs(self, capturer: Capturer, *, at_most: int | None = None) -> None:
        """Records the forward passes of decode batches, for steps to launch them as a whole.

        Call it once, when all that lies on the device is there, and before the first step.

        Args:
            capturer: how.
            at_most: record only so many of them, the largest.

        Raises:
            GraphCaptureError: the model's cannot be recorded.
        """
        self.forward_pass.graphs = record_decodes(
            self.model, self.forward_pass.backend, self._config, capturer, at_most=at_most
        )

    @torch.inference_mode()
    def execute(
        self, output: SchedulerOutput, bitmask: GrammarBitmask | None = None
    ) -> ModelRunnerOutput:
        """Returns the next token of each scheduled request that reached its newest token.

        Raises:
            BatchError: the deltas contradict what they said before.
        """
        if self.transfers is None:
            return self._run(output, bitmask)
        self._enter(Phase.connector)
        report = self.transfers.begin_step(output, self._placed)
        result = self._run(output, bitmask, report)
        return result if report is None else report.added_to(result)

    def _run(
        self,
        output: SchedulerOutput,
        bitmask: GrammarBitmask | None,
        report: TransferReport | None = None,
    ) -> ModelRunnerOutput:
        """Runs a step whose transfers have been seen to."""
        began = self._enter(Phase.inputs)
        self._apply(output)
        if report is not None and report.invalid_block_ids:
            self.batch.make_void(report.invalid_block_ids)
        if not output.num_scheduled_tokens:
            return ModelRunnerOutput(inputs_ns=time.monotonic_ns() - began)
        inputs = self.batch.prepare(
            output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
        )
        forward = self.forward_pass.prepare(inputs, self._adapters_of(inputs))
        forward_began = self._enter(Phase.forward)
        logits = forward.run()
        launched = self._enter(Phase.sample)
        rows = self._rows(inputs, bitmask)
        sampled = self._sampler.sample(logits, rows)
        self.batch.commit(inputs, sampled.token_ids)
        forward_ns = self.forward_pass.clock.elapsed_ns() or launched - forward_began
        ended = time.monotonic_ns()
        drafts, draft_ns = self._draft(inputs)
        return ModelRunnerOutput(
            sampled_token_ids=dict(zip(rows.request_ids, sampled.token_ids, strict=True)),
            logprobs=sampled.logprobs,
            draft_token_ids=drafts,
            graph_mode=forward.graph_mode,
            inputs_ns=forward_began - began,
            forward_ns=forward_ns,
            sample_ns=max(0, ended - forward_began - forward_ns),
            draft_ns=draft_ns,
        )

    def _placed(self, request_id: str) -> Placed | None:
        """Returns where a request's KV lies, and how much of it counts."""
        if request_id not in self.batch.request_ids:
            return None
        row = self.batch.row_of(request_id)
        num_blocks = int(self.batch.num_blocks[0, row])
        computed = int(self.batch.num_computed_tokens[row])
        return Placed(
            self.batch.block_tables[0, row, :num_blocks].tolist(),
            0 if request_id in self.batch.void else computed,
        )

    def _draft(self, inputs: BatchInputs) -> tuple[dict[str, list[int]], int | None]:
        """Returns guesses at the tokens behind the new ones, and how long they took (ns)."""
        if self._drafting is None:
            return {}, None
        began = self._enter(Phase.draft)
        drafts = self._drafting.propose(self.batch, inputs, self._sampler)
        return drafts, time.monotonic_ns() - began

    def _enter(self, phase: Phase) -> int:
        """Tells of a phase; returns when it begins (monotonic ns)."""
        if self._phase_hook is not None:
            self._phase_hook(phase)
        return time.monotonic_ns()

    def _apply(self, output: SchedulerOutput) -> None:
        self.batch.apply(output)
        if self.adapters is not None:
            self.adapters.apply(output)
        if self._drafting is not None:
            self._drafting.apply(output)
        for request_id in output.finished_req_ids:
            self._sampler.remove(request_id)
        for new in output.scheduled_new_reqs:
            self._sampler.add(new.request_id, new.sampling)

    def _adapters_of(self, inputs: BatchInputs) -> AdapterMapping | None:
        if self.adapters is None:
            return None
        return self.adapters.mapping(inputs.request_ids, inputs.query_lens)

    def _rows(self, inputs: BatchInputs, bitmask: GrammarBitmask | None) -> SampleRows:
        """Returns what the rows of the step's logits are for."""
        seqs, batch = inputs.sampling_seqs.tolist(), self.batch
        rows = inputs.rows[inputs.sampling_seqs].tolist()
        num_prompt_tokens = batch.num_prompt_tokens[rows].tolist()
        num_tokens = batch.num_tokens[rows].tolist()
        drawn_from = {}
        if self._drafting is not None:
            drawn_from = self._drafting.drawn_from(
                {inputs.request_ids[i]: ids for i, ids in inputs.draft_token_ids.items()}
            )
        request_ids = [inputs.request_ids[i] for i in seqs]
        drafts = [inputs.draft_token_ids.get(i, ()) for i in seqs]
        return SampleRows(
            request_ids=request_ids,
            num_outputs=[n - p for n, p in zip(num_tokens, num_prompt_tokens, strict=True)],
            num_prompt_tokens=num_prompt_tokens,
            known_token_ids=[batch.token_ids[r, :n] for r, n in zip(rows, num_tokens, strict=True)],
            draft_token_ids=drafts,
            bitmask=None if bitmask is None else bitmask.for_rows(request_ids, drafts),
            draft_logits=drawn_from,
        )

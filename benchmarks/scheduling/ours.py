"""Our scheduler as a course drives it: through its public interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Any

import numpy as np

from benchmarks.scheduling.workloads import BLOCK_SIZE, MAX_MODEL_LEN, NewRequest, Workload
from engine.config import CacheConfig, EngineConfig, SchedulerConfig
from engine.request import Request
from engine.sampling import SamplingParams
from engine.scheduler import ModelRunnerOutput, RequestOutput, Scheduler, SchedulerOutput
from telemetry.recorder import Recorder
from telemetry.vocabulary import SkipReason


class OurSide:
    """A scheduler with the settings of a workload.

    Args:
        recorder: takes the record down; `NullRecorder` is recording off.
        clock: the recorder's, in ns since the Unix epoch.
    """

    def __init__(self, workload: Workload, recorder: Recorder, clock: Callable[[], int]) -> None:
        self._scheduler = Scheduler(_config(workload), recorder=recorder, clock=clock)
        self.schedule: Callable[[], Any] = self._scheduler.schedule
        self.update: Callable[[Any, Any], Sized] = self._scheduler.update_from_output

    @property
    def num_requests(self) -> int:
        return len(self._scheduler.requests)

    def add(self, new: NewRequest) -> None:
        request = Request(
            new.request_id,
            number=new.index,
            prompt_token_ids=new.prompt,
            sampling=SamplingParams(max_tokens=new.max_tokens, ignore_eos=True),
            arrival_time=float(new.index),
            priority=new.priority,
            blocked_by=SkipReason.grammar_compiling if new.waits_for_grammar else None,
        )
        self._scheduler.add_request(request)

    def answer(self, output: SchedulerOutput, token_id: int) -> ModelRunnerOutput:
        requests, decodes = self._scheduler.requests, output.decodes
        return ModelRunnerOutput(
            sampled_token_ids={
                name: [token_id]
                for name in output.other_scheduled_tokens
                if not requests[name].is_prefill_chunk
            },
            decode_token_ids=(
                None if decodes is None else np.full(len(decodes), token_id, dtype=np.int32)
            ),
        )

    def num_scheduled_tokens(self, output: SchedulerOutput) -> int:
        return output.total_num_scheduled_tokens

    def num_preempted(self, output: SchedulerOutput) -> int:
        return len(output.preempted_req_ids)

    def decisions(self, output: SchedulerOutput, results: Iterable[RequestOutput]) -> object:
        given = [(new.request_id, _tables(new.block_ids)) for new in output.scheduled_new_reqs]
        given += [
            (known.request_id, _tables(known.new_block_ids))
            for known in output.scheduled_cached_reqs
            if known.new_block_ids is not None
        ]
        tokens = [(r.request_id, list(r.new_token_ids), _reason(r)) for r in results]
        return (
            list(output.num_scheduled_tokens.items()),
            given,
            sorted(output.preempted_req_ids),
            sorted(output.finished_req_ids),
            tokens,
        )


def _config(workload: Workload) -> EngineConfig:
    return EngineConfig(
        scheduler=SchedulerConfig(
            policy=workload.policy,
            max_num_seqs=workload.max_num_seqs,
            max_num_batched_tokens=workload.max_num_batched_tokens,
            max_model_len=MAX_MODEL_LEN,
            scheduler_reserve_full_isl=workload.reserves_full_prompt,
        ),
        cache=CacheConfig(
            block_size=BLOCK_SIZE,
            num_gpu_blocks=workload.num_gpu_blocks,
            enable_prefix_caching=workload.prefix_caching,
        ),
    )


def _tables(block_ids: tuple[list[int], ...]) -> list[list[int]]:
    return [list(blocks) for blocks in block_ids]


def _reason(result: RequestOutput) -> str | None:
    return None if result.finish_reason is None else result.finish_reason.name

"""vLLM's own scheduler, driven without a model: runs in vLLM's environment, not in ours.

A `Lab` is one scheduler with its configuration, its requests and scripted outputs. It drives the
scheduler as the engine core does: `schedule()`, a made-up `ModelRunnerOutput`, and
`update_from_output()`, with asynchronous scheduling one step behind. `truth` is what the scheduler
itself says of each step, to be compared with what was recorded.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_USE_V2_MODEL_RUNNER="0")
for _name in ("torchvision", "torchaudio", "torchcodec"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]  # wheels that fit no torch here

import torch  # noqa: E402
from vllm.config import (  # noqa: E402
    CacheConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.config.lora import LoRAConfig  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
    KVConnectorMetadata,
)
from vllm.lora.request import LoRARequest  # noqa: E402
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange  # noqa: E402
from vllm.sampling_params import SamplingParams, StructuredOutputsParams  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager  # noqa: E402
from vllm.v1.core.kv_cache_utils import (  # noqa: E402
    get_request_block_hasher,
    init_none_hash,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

from telemetry.recorder import ListRecorder, Recorder  # noqa: E402
from telemetry.sources.vllm.compatibility import Features  # noqa: E402
from telemetry.sources.vllm.recording import recording_class  # noqa: E402
from tests.telemetry.sources.vllm.what_happened import StepTruth  # noqa: E402

EOS = 2
REFUSED = 3
"""The token that a grammar never takes."""
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1_000_000,
    "max_position_embeddings": 65_536,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "tie_word_embeddings": False,
}
EAGLE = {**MODEL, "architectures": ["EagleLlamaForCausalLM"], "draft_vocab_size": 1_000_000}

init_none_hash(sha256)


@dataclass(kw_only=True)
class Settings:
    """A scheduler's configuration, as far as these tests vary it."""

    policy: str = "fcfs"
    max_num_seqs: int = 16
    max_num_active_seqs: int | None = None
    max_num_batched_tokens: int = 256
    max_num_scheduled_tokens: int | None = None
    max_model_len: int = 512
    block_size: int = 16
    num_blocks: int = 65
    """With the null block."""
    prefix_caching: bool = False
    chunked_prefill: bool = True
    long_prefill: int = 0
    reserve_whole_prompt: bool = True
    watermark: float = 0.0
    is_async: bool = False
    num_ahead: int = 0
    """Steps that are decided before the output of the first one is taken in."""
    num_drafts: int = 0
    drafter: str = "ngram"
    max_loras: int = 0
    encoder_budget: int = 0
    encoder_cache: int = 0
    whole_items_only: bool = False
    windows: tuple[tuple[int, int | None], ...] = ()
    """KV groups: block size, and sliding window or None; empty: one group of `block_size`."""
    long_prefill_adaptive: bool = False
    parallel_drafting: bool = False
    """Each request takes more of the model's input than its tokens."""
    aligns_chunks: bool = False
    """Chunks end where a block does, as with a state-space layer."""
    prefill_lookahead: int = 0
    decode_stagger: int = 0
    """Steps between two decodes of one request, as with a pipeline; 0 without."""
    brings_items: bool = False
    """Encoder outputs come from another engine, and have not come."""
    connector_role: str | None = None
    load_failure_policy: str = "recompute"


@dataclass(kw_only=True)
class Script:
    """A request, and how the model and the connector behave towards it."""

    name: str
    prompt: int | list[int] = 32
    """Tokens of its own, or all tokens."""
    max_tokens: int = 8
    eos_after: int | None = None
    priority: int = 0
    arrival_time: float = 0.0
    lora: int | None = None
    has_grammar: bool = False
    items: list[tuple[str, int, int]] = field(default_factory=list)
    """Encoder items: key, position, length."""
    external: int = 0
    """Prompt tokens that the connector has, from the first on."""
    loads_async: bool = False
    num_unknown: int = 0
    """Look-ups that the connector cannot answer yet."""
    keeps_blocks: bool = False
    """Its blocks are kept at its end, until they have been sent."""
    is_session: bool = False
    num_right: int = 0
    """Drafts of it that are right in each verification."""
    headers: dict[str, str] | None = None
    cache_salt: str | None = None
    reads_cache: bool = True


class LabConnector(KVConnectorBase_V1):
    """A connector without storage: it says what the scripts of the lab say."""

    scripts: ClassVar[dict[str, Script]] = {}

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        script = self.scripts[request.request_id]
        if script.num_unknown > 0:
            script.num_unknown -= 1
            return None, False
        num = script.external - num_computed_tokens
        return (num, script.loads_async) if num > 0 else (0, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing to remember."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        return self.scripts[request.request_id].keeps_blocks, None

    def start_load_kv(self, *_: Any, **__: Any) -> None: ...
    def wait_for_layer_load(self, *_: Any, **__: Any) -> None: ...
    def save_kv_layer(self, *_: Any, **__: Any) -> None: ...
    def wait_for_save(self, *_: Any, **__: Any) -> None: ...


KVConnectorFactory.register_connector("LabConnector", __name__, "LabConnector")


class LabGrammar:
    """Takes every token but one."""

    def accept_tokens(self, *_: Any) -> bool:
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens[: tokens.index(REFUSED)] if REFUSED in tokens else tokens

    def rollback(self, *_: Any) -> None: ...
    def is_terminated(self) -> bool:
        return False

    def reset(self) -> None: ...


class Bringer:
    """Brings encoder outputs from another engine, or does not yet."""

    has_all = True

    def ensure_cache_available(self, *_: Any) -> bool:
        return self.has_all

    def has_cache_item(self, *_: Any) -> bool:
        return False

    def has_pending_push_work(self) -> bool:
        return False

    def build_connector_meta(self, *_: Any) -> None: ...
    def update_state_after_alloc(self, *_: Any) -> None: ...
    def update_state_after_free(self, *_: Any) -> None: ...
    def take_unavailable_requests(self) -> tuple[str, ...]:
        return ()

    def request_finished(self, *_: Any) -> tuple[bool, None]:
        return False, None

    def get_ec_connector_stats(self) -> None: ...
    def shutdown(self) -> None: ...


class _Truthful:
    """Writes down each preemption as the scheduler makes it."""

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self.preempted_now.append((request.request_id, request.num_computed_tokens))
        return super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]


def base_class(settings: Settings) -> type:
    """Returns the scheduler class that vLLM would choose, with its preemptions written down."""
    chosen = AsyncScheduler if settings.is_async else Scheduler

    class Chosen(_Truthful, chosen):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.preempted_now: list[tuple[str, int]] = []
            super().__init__(*args, **kwargs)
            if settings.encoder_cache:
                self.max_num_encoder_input_tokens = settings.encoder_budget
                self.encoder_cache_manager = EncoderCacheManager(settings.encoder_cache)
            self.need_mamba_block_aligned_split = settings.aligns_chunks
            self.num_prefill_lookahead = settings.prefill_lookahead or self.num_prefill_lookahead
            if settings.decode_stagger:
                self.use_v2_model_runner = True
                self.decode_stagger = settings.decode_stagger
            if settings.encoder_cache:
                self.ec_connector = Bringer()
                self.ec_connector.has_all = not settings.brings_items

    return Chosen


def vllm_config(settings: Settings, model_dir: Path) -> VllmConfig:
    """Returns vLLM's configuration for a lab's."""
    model = ModelConfig(
        model=str(model_dir),
        dtype="float32",
        seed=0,
        skip_tokenizer_init=True,
        max_model_len=settings.max_model_len,
    )
    block_size = math.lcm(*(size for size, _ in settings.windows or ((settings.block_size, 0),)))
    transfer = settings.connector_role and KVTransferConfig(
        kv_connector="LabConnector",
        kv_role=settings.connector_role,
        kv_load_failure_policy=settings.load_failure_policy,
    )
    config = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(
            max_num_seqs=settings.max_num_seqs,
            max_num_active_seqs=settings.max_num_active_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_num_scheduled_tokens=settings.max_num_scheduled_tokens,
            max_model_len=settings.max_model_len,
            is_encoder_decoder=False,
            enable_chunked_prefill=settings.chunked_prefill,
            long_prefill_token_threshold=settings.long_prefill,
            long_prefill_token_threshold_adaptive=settings.long_prefill_adaptive,
            scheduler_reserve_full_isl=settings.reserve_whole_prompt,
            watermark=settings.watermark,
            policy=settings.policy,
            disable_chunked_mm_input=settings.whole_items_only,
            async_scheduling=settings.is_async,
            disable_hybrid_kv_cache_manager=bool(transfer) or None,
        ),
        cache_config=CacheConfig(
            block_size=block_size, enable_prefix_caching=settings.prefix_caching
        ),
        speculative_config=_speculation(settings, model) if settings.num_drafts else None,
        kv_transfer_config=transfer or None,
        lora_config=LoRAConfig(max_loras=settings.max_loras, max_lora_rank=8)
        if settings.max_loras
        else None,
    )
    if settings.parallel_drafting:
        config.speculative_config.parallel_drafting = True
    config.scheduler_config.async_scheduling = settings.is_async  # the CPU platform turns it off
    config.cache_config.num_gpu_blocks = settings.num_blocks
    return config


def _speculation(settings: Settings, model: ModelConfig) -> SpeculativeConfig:
    if settings.drafter == "eagle":
        return SpeculativeConfig(
            method="eagle",
            model=str(write_model(Path(model.model) / "eagle", EAGLE)),
            num_speculative_tokens=settings.num_drafts,
            target_model_config=model,
            target_parallel_config=ParallelConfig(),
        )
    return SpeculativeConfig(
        method="ngram",
        num_speculative_tokens=settings.num_drafts,
        prompt_lookup_max=3,
        prompt_lookup_min=2,
        target_model_config=model,
        target_parallel_config=ParallelConfig(),
    )


def write_model(directory: Path, config: dict[str, Any] = MODEL) -> Path:
    """Writes the configuration of a tiny model; there are no weights."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


class Lab:
    """One scheduler, driven step by step.

    Args:
        recorder: takes the record; None runs vLLM's own class, unrecorded.
        wrap: changes the scheduler class last, e.g. to break its hooks.
    """

    def __init__(
        self,
        settings: Settings,
        model_dir: Path,
        recorder: Callable[[Any, Any], Recorder] | Recorder | None = None,
        *,
        features: Features | None = None,
    ) -> None:
        self.settings = settings
        self.recorder = recorder if isinstance(recorder, ListRecorder) else None
        self.scripts: dict[str, Script] = {}
        self.truth: list[StepTruth] = []
        self.in_flight: deque[tuple[Any, StepTruth, set[str], list[str]]] = deque()
        self.received: list[str] = []
        self.sent: list[str] = []
        self.invalid: list[tuple[str, int]] = []
        self.failed: list[str] = []
        self._loads: set[str] = set()
        """Requests whose KV is being loaded, also where they have ended since."""
        self._num_out: dict[str, int] = {}
        self._base: dict[str, int] = {}
        LabConnector.scripts = self.scripts
        self.scheduler = self._made(model_dir, recorder, features or Features())
        self._hasher = (
            get_request_block_hasher(self.scheduler.hash_block_size, sha256)
            if settings.prefix_caching or settings.connector_role
            else None
        )

    def _made(self, model_dir: Path, recorder: Any, features: Features) -> Any:
        settings = self.settings
        config = vllm_config(settings, model_dir)
        shape = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
        specs: list[Any] = [
            SlidingWindowSpec(block_size=size, sliding_window=window, **shape)
            if window
            else FullAttentionSpec(block_size=size, **shape)
            for size, window in settings.windows or ((settings.block_size, None),)
        ]
        sizes = [spec.block_size for spec in specs]
        cls = base_class(settings)
        if recorder is not None:
            opened = recorder if callable(recorder) else lambda *_: recorder
            cls = recording_class(cls, features, opened)
        return cls(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=settings.num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[
                    KVCacheGroupSpec([f"layer{index}"], spec) for index, spec in enumerate(specs)
                ],
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=math.lcm(*sizes),
            hash_block_size=math.gcd(*sizes),
            log_stats=True,
        )

    # -------------------------------------------------------------------- what comes from outside

    def add(self, script: Script) -> None:
        """Adds a request."""
        self.scripts[script.name] = script
        self._base[script.name] = 1000 * (1 + len(self._base))
        self.scheduler.add_request(self._request(script, script.prompt))

    def say(self, name: str, num_tokens: int) -> None:
        """Gives a session more input."""
        self.scheduler.add_request(self._request(self.scripts[name], num_tokens))

    def end_session(self, name: str) -> None:
        """Closes a session."""
        request = self._request(self.scripts[name], 1)
        request.resumable = False
        self.scheduler.add_request(request)

    def abort(self, *names: str) -> None:
        """Has clients go away."""
        self.scheduler.finish_requests(list(names), RequestStatus.FINISHED_ABORTED)

    def pause(self, state: str) -> None:
        """Pauses or unpauses."""
        self.scheduler.set_pause_state(PauseState[state])

    def grammar_is(self, name: str, grammar: Any) -> None:
        """Has a grammar's compilation end."""
        request = self.scheduler.requests.get(name)
        if request is not None and request.structured_output_request.grammar is None:
            request.structured_output_request.grammar = grammar

    def bring_items(self) -> None:
        """Has further encoder outputs come from another engine, later."""
        self.scheduler.ec_connector.has_all = False

    def _request(self, script: Script, prompt: int | list[int]) -> Any:
        if isinstance(prompt, int):
            first = 100_000 + 1000 * len(self._base)
            prompt = list(range(first, first + prompt))
        asked: dict[str, Any] = {"max_tokens": script.max_tokens, "temperature": 0.0}
        if script.has_grammar:
            asked["structured_outputs"] = StructuredOutputsParams(regex="a+")
        if not script.reads_cache:
            asked["skip_reading_prefix_cache"] = True
        params = SamplingParams(**asked)
        params._eos_token_id = EOS
        return Request(
            request_id=script.name,
            prompt_token_ids=prompt,
            sampling_params=params,
            pooling_params=None,
            arrival_time=script.arrival_time,
            priority=script.priority,
            lora_request=LoRARequest(f"lora{script.lora}", script.lora, "/nowhere")
            if script.lora
            else None,
            mm_features=[
                MultiModalFeatureSpec(
                    data=None,
                    modality="image",
                    identifier=key,
                    mm_hash=key,
                    mm_position=PlaceholderRange(offset=offset, length=length),
                )
                for key, offset, length in script.items
            ]
            or None,
            block_hasher=self._hasher,
            resumable=script.is_session,
            trace_headers=script.headers,
            cache_salt=script.cache_salt,
        )

    # ------------------------------------------------------------------------- steps

    def step(self, *, throttle: bool = False) -> StepTruth:
        """Runs one step; with steps ahead, takes in the oldest one in flight."""
        truth = self.schedule(throttle=throttle)
        if len(self.in_flight) > self.settings.num_ahead:
            self.update()
        return truth

    def schedule(self, *, throttle: bool = False) -> StepTruth:
        """Decides a step and leaves it in flight."""
        scheduler = self.scheduler
        output = scheduler.schedule(throttle) if throttle else scheduler.schedule()
        pool = scheduler.kv_cache_manager.block_pool
        free = pool.free_block_queue.get_all_free_blocks()
        truth = StepTruth(
            scheduled=dict(output.num_scheduled_tokens),
            preempted=list(scheduler.preempted_now),
            waiting=[
                r.request_id for q in (scheduler.kv_holding_waiting, scheduler.waiting) for r in q
            ],
            num_free=len(free),
            num_free_cached=sum(block.block_hash is not None for block in free),
        )
        scheduler.preempted_now.clear()
        self.truth.append(truth)
        self._loads.update(self.loading())
        sampling = {
            name
            for name in output.num_scheduled_tokens
            if not scheduler.requests[name].is_prefill_chunk
        }
        cached = output.scheduled_cached_reqs
        admitted = [data.req_id for data in output.scheduled_new_reqs]
        admitted += [name for name in cached.req_ids if name in cached.resumed_req_ids]
        self.in_flight.append((output, truth, sampling, admitted))
        return truth

    def update(self) -> None:
        """Takes in the oldest step in flight."""
        output, truth, sampling, admitted = self.in_flight.popleft()
        names = list(output.num_scheduled_tokens)
        sampled = [
            self._tokens(name, output, name in admitted) if name in sampling else []
            for name in names
        ]
        runner_output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=self._transfers(),
        )
        results = self.scheduler.update_from_output(output, runner_output)
        for outputs in results.values():
            for result in outputs.outputs:
                self._num_out[result.request_id] = self._num_out.get(result.request_id, 0) + len(
                    result.new_token_ids
                )
                truth.sampled[result.request_id] = len(result.new_token_ids)
                if result.finish_reason is not None:
                    truth.finished.append((result.request_id, str(result.finish_reason)))
        if self.settings.num_drafts and not self.settings.is_async and names:
            self._propose(sampling)

    def run(self, max_steps: int = 400) -> None:
        """Runs until nothing is left to do."""
        for _ in range(max_steps):
            if not self.scheduler.has_requests() and not self.in_flight:
                return
            if self.scheduler.has_requests():
                self.step()
            else:
                self.update()

    def _tokens(self, name: str, output: Any, is_admission: bool) -> list[int]:
        script, num = self.scripts[name], self._num_out.get(name, 0)
        placed = output.scheduled_spec_decode_tokens.get(name, ())
        num_right = 0 if is_admission else min(len(placed), script.num_right)
        return [self._token(script, num + index) for index in range(1 + num_right)]

    def _token(self, script: Script, index: int) -> int:
        return EOS if index == script.eos_after else self._base[script.name] + index

    def _propose(self, sampling: set[str]) -> None:
        names, tokens = [], []
        for name in sorted(sampling):
            script, num = self.scripts[name], self._num_out.get(name, 0)
            names.append(name)
            tokens.append(
                [
                    self._token(script, num + i) if i < script.num_right else REFUSED
                    for i in range(self.settings.num_drafts)
                ]
            )
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, tokens))

    def _transfers(self) -> Any:
        if not self.settings.connector_role:
            return None
        received, sent, failed = set(self.received), set(self.sent), set(self.failed)
        blocks = self.scheduler.kv_cache_manager
        invalid = {blocks.get_block_ids(name)[0][place] for name, place in self.invalid}
        self._loads -= received
        for each in (self.received, self.sent, self.failed, self.invalid):
            each.clear()
        if not (received or sent or failed or invalid):
            return None
        return KVConnectorOutput(
            finished_recving=received or None,
            finished_sending=sent or None,
            invalid_block_ids=invalid,
            failed_recving=failed,
        )

    # ------------------------------------------------------------------------- what is there

    def loading(self) -> list[str]:
        """Returns the requests whose KV is being loaded and has not been received."""
        scheduler = self.scheduler
        return [
            request.request_id
            for request in scheduler.kv_holding_waiting
            if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
            and request.request_id not in scheduler.finished_recving_kv_req_ids
            and request.request_id not in self.received
        ]

    def kept(self) -> list[str]:
        """Returns the requests that have ended and whose blocks are kept for sending."""
        return [
            name
            for name, request in self.scheduler.requests.items()
            if request.is_finished() and name not in self.sent + self.received
        ]

    def let_go(self, name: str) -> None:
        """Has the transfer end that an ended request's blocks are kept for."""
        (self.received if name in self._loads else self.sent).append(name)

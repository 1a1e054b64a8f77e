"""A KV connector whose asynchronous loads take as long as a request asks for.

vLLM loads it by `kv_connector_module_path`. A request with `kv_transfer_params` of
`{"slow_tokens": 64, "slow_seconds": 0.5, "slow_answers": 3}` finds 64 tokens of its prompt outside,
after three look-ups that were not answered yet, and their load takes half a second. All others find
nothing. What is loaded is whatever lies in the blocks: of a model with random weights, nobody can
tell.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)


@dataclass
class SlowLoads(KVConnectorMetadata):
    """Loads that begin with a step: seconds by request."""

    seconds: dict[str, float] = field(default_factory=dict)


class SlowKVConnector(KVConnectorBase_V1, SupportsHMA):
    """Both sides: the scheduler's promises a prefix, the worker's lets the time pass."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._num_unanswered: dict[str, int] = {}
        self._starting = SlowLoads()
        self._due: dict[str, float] = {}

    # ------------------------------------------------------------------------- scheduler's side

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        asked = request.kv_transfer_params or {}
        if "slow_tokens" not in asked:
            return 0, False
        unanswered = self._num_unanswered.setdefault(
            request.request_id, asked.get("slow_answers", 0)
        )
        if unanswered:
            self._num_unanswered[request.request_id] = unanswered - 1
            return None, False
        missing = max(0, asked["slow_tokens"] - num_computed_tokens)
        return missing, missing > 0  # vLLM ends itself over an asynchronous load of nothing

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            seconds = request.kv_transfer_params["slow_seconds"]
            self._starting.seconds[request.request_id] = seconds

    def build_connector_meta(self, scheduler_output: Any) -> SlowLoads:
        starting, self._starting = self._starting, SlowLoads()
        return starting

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        self._num_unanswered.pop(request.request_id, None)
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return self.request_finished(request, block_ids)

    # ---------------------------------------------------------------------------- worker's side

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        now = time.monotonic()
        starting = self._get_connector_metadata()
        assert isinstance(starting, SlowLoads)
        for name, seconds in starting.seconds.items():
            self._due[name] = now + seconds

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        now = time.monotonic()
        done = {name for name, due in self._due.items() if due <= now}
        for name in done:
            del self._due[name]
        return None, done or None

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None: ...

    def wait_for_save(self) -> None: ...

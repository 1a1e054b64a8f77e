"""What the journal hears of a KV connector's transfers when an update brings news of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from telemetry.sources.vllm.parts import Parts


class LoadHooks(Parts):
    """Takes down which transfers have ended, and which loads have failed."""

    def before_update_from_kv_xfer_finished(self, kv_connector_output: Any) -> None:
        """Workers have received or sent KV; vLLM has not acted on it yet."""
        self.loads.transfers_finished(kv_connector_output)

    def after_handle_failed_recving(self, _: Any, failed_req_ids: Collection[str]) -> None:
        """Loads have failed as a whole; their requests, cut back already, start over or end."""
        for name in sorted(failed_req_ids):
            life = self.lives.by_id.get(name)
            if life is not None and life.load_since is not None:
                self.loads.failed(name, None)

    def after_update_requests_with_invalid_blocks(
        self, result: Any, requests: Any, invalid_block_ids: Collection[int], *_: Any, **__: Any
    ) -> None:
        """Blocks have failed to load, and the requests that hold them were cut back."""
        for name in sorted(result[0]):
            self.loads.failed(name, invalid_block_ids)

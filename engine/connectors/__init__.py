"""Connectors: what lies elsewhere, and who brings it. The scheduler knows the protocols alone.

A KV connector answers for a request how many tokens beyond its local hit it can bring. A
synchronous load is part of the step; an asynchronous one takes blocks, runs beside the steps, and
is reported by the runner when it is done (`ModelRunnerOutput.finished_recving`). An encoder
connector answers for an encoder item; its transfers are asynchronous, and reported by key
(`finished_ec_recving`, `failed_ec_recving`). `metadata` is what a step tells the workers.

The KV connectors of this engine keep blocks under keys in a store:

* `block_store`: the interface; `host_memory` and `shared_directory` (`block_file`) are the stores.
* `block_keys`: the keys. `store_connector`: the scheduler's side.
* `worker`: the runner's side, with `transfers` and `transfer_threads`; `no_blocks` stands in for
  the KV cache where there is no model (`engine.runner.paged_blocks` where there is).
* `settings`: `--kv-transfer-config`; `faults`: `--inject`; `building` puts it all together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.connectors.metadata import ECConnectorMetadata, KVConnectorMetadata, KVLoad

if TYPE_CHECKING:
    from engine.request import Request

__all__ = [
    "ECConnector",
    "ECConnectorMetadata",
    "KVConnector",
    "KVConnectorMetadata",
    "KVLoad",
]


class KVConnector(Protocol):
    """The scheduler's side of a KV connector."""

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        """Returns how many tokens it has behind the local hit; None while it does not know."""

    def loads_async(self, request: Request) -> bool:
        """Whether what it brings is loaded beside the steps."""

    def delays_free(self, request: Request) -> bool:
        """Whether the blocks of a request that ends are still being sent."""


class ECConnector(Protocol):
    """The scheduler's side of a connector for encoder outputs."""

    def has(self, key: str) -> bool:
        """Whether the encoder output of a key can be brought from elsewhere."""

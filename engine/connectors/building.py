"""Puts a connector together: its store, the scheduler's side, the worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.config import ConfigError, EngineConfig
from engine.connectors.block_keys import BlockKeys
from engine.connectors.block_store import BlockStore
from engine.connectors.faults import Fault, FaultPlan
from engine.connectors.host_memory import HostMemoryStore
from engine.connectors.settings import KVTransferConfig
from engine.connectors.shared_directory import SharedDirectoryStore
from engine.connectors.store_connector import StoreConnector
from engine.connectors.worker import KVTransferWorker, PagedBlocks
from engine.kv_cache.hashing import KEY_BYTES


def check_kv_groups(config: EngineConfig) -> None:
    """Refuses a connector where a model keeps KV in several groups, or behind a window only.

    Raises:
        ConfigError: it does. What has left a window is gone, so that no later request could be
            given the whole of a prefix.
    """
    groups = config.cache.kv_groups
    if config.kv_connector is not None and [group.kind for group in groups] != ["full"]:
        kinds = ", ".join(
            group.kind if group.sliding_window is None else f"{group.kind} {group.sliding_window:,}"
            for group in groups
        )
        raise ConfigError(
            f"a KV connector is configured but the model has the KV groups {kinds}: only models "
            "with full attention in every layer can use one; leave --kv-transfer-config out"
        )


def build_connector(
    transfer: KVTransferConfig,
    faults: Sequence[Fault],
    config: EngineConfig,
    blocks: PagedBlocks,
    manifest: Callable[[], Mapping[str, Any]],
) -> KVTransferWorker:
    """Returns a connector's worker, with the scheduler's side in it.

    Args:
        blocks: the paged KV cache.
        manifest: gives what decides whether KV is interchangeable between engines.

    Raises:
        ConfigError: the settings do not fit the model, or its directory cannot be used.
    """
    check_kv_groups(config)
    connector_config = config.kv_connector or transfer.config()
    store: BlockStore
    if transfer.shared_storage_path is not None:
        store = shared = SharedDirectoryStore(
            transfer.shared_storage_path, manifest(), max_bytes=transfer.max_bytes
        )
        seed = shared.namespace
    else:
        store = HostMemoryStore(transfer.max_bytes)
        seed = os.urandom(KEY_BYTES)  # nobody else ever sees these keys, nor can guess them
    plan = FaultPlan(faults)
    connector = StoreConnector(
        store,
        connector_config,
        BlockKeys(
            config.cache.block_size, seed, is_shared=transfer.shared_storage_path is not None
        ),
        load_async=transfer.load_async,
        faults=plan,
    )
    return KVTransferWorker(store, connector, blocks, faults=plan, num_threads=transfer.num_threads)

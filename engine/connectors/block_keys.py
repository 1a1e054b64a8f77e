"""The keys under which a connector stores blocks.

They are made as the prefix cache makes its own, but begin with a seed that says whose KV it is: the
same in every engine that may share it, and another one wherever KV could not be used.
"""

from __future__ import annotations

from engine.kv_cache.block_index import BlockKey
from engine.kv_cache.hashing import extend_block_keys
from engine.request import Request


class BlockKeys:
    """Makes the keys of requests' blocks.

    Args:
        seed: what every chain begins with.
        is_shared: whether other engines use the keys, to which an adapter's name says nothing.
    """

    def __init__(self, block_size: int, seed: bytes, *, is_shared: bool) -> None:
        self.block_size = block_size
        self._seed = seed
        self._is_shared = is_shared

    def extend(self, keys: list[BlockKey], request: Request) -> None:
        """Appends the keys of a request's full blocks that are not there yet.

        None where its adapter's weights cannot be told from others. A session's tokens change, so
        its keys are made anew.
        """
        if request.session is not None:
            keys.clear()
        adapter = request.adapter_key
        if adapter is None and request.adapter is not None:
            if self._is_shared:
                return
            adapter = request.adapter
        extend_block_keys(
            keys,
            request.token_ids,
            self.block_size,
            adapter=adapter,
            salt=request.cache_salt,
            items=request.encoder_items,
            seed=self._seed,
        )

"""Blocks of a runner without a model: a connector moves them, and nothing is in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.connectors.block_store import Payload


class NoBlocks:
    """Blocks of no bytes."""

    block_bytes = 0

    def read(self, block_ids: Sequence[int]) -> Payload:
        """Returns so many times nothing, `[len(block_ids), 0]`."""
        return np.empty((len(block_ids), 0), np.uint8)

    def write(self, block_ids: Sequence[int], payload: Payload) -> None:
        """Puts nothing into blocks."""

"""A load and a save, as the thread that does it and the step loop see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.connectors.block_store import BlockStore, BlockStoreError, Payload
from engine.connectors.faults import Fate
from engine.connectors.store_connector import BlocksToSave
from engine.kv_cache.block_index import BlockKey

ASKED_FOR = "the fault was asked for (--inject)"


@dataclass(slots=True, kw_only=True, eq=False)
class Load:
    """Blocks that a request waits for.

    Attributes:
        first: place of the first of them in the request's table.
        payloads: what has come, a block each, up to the first that failed.
        is_wanted: whether the request still waits; the step loop takes that back.
        error: why the others have not.
    """

    request_id: str
    first: int
    block_ids: tuple[int, ...]
    keys: tuple[BlockKey, ...]
    fate: Fate
    payloads: list[Payload] = field(default_factory=list)
    is_wanted: bool = True
    error: str | None = None

    def read(self, store: BlockStore) -> None:
        """Reads block by block, as long as that works and somebody waits."""
        num_blocks = len(self.keys)
        if self.fate.end in ("fail", "fail_half"):
            num_blocks = num_blocks // 2 if self.fate.end == "fail_half" else 0
            self.error = ASKED_FOR
        for key in self.keys[:num_blocks]:
            if not self.is_wanted:
                return
            try:
                self.payloads.append(store.read(key))
            except BlockStoreError as error:
                self.error = str(error)
                return


@dataclass(slots=True, kw_only=True, eq=False)
class Save:
    """Copies of blocks on their way to the store.

    Attributes:
        payload: `[len(blocks.keys), block_bytes]`.
        acknowledgement: the fate of what gives the blocks back; None where none are kept.
        error: why a block could not be written.
        is_told: whether it has been reported that the save itself has ended.
    """

    request_id: str
    blocks: BlocksToSave
    payload: Payload
    fate: Fate
    acknowledgement: Fate | None
    error: str | None = None
    is_told: bool = False

    def write(self, store: BlockStore) -> None:
        """Writes block by block, as long as that works; a save that is lost writes none."""
        if self.fate.end == "lose":
            return
        if self.fate.end == "fail":
            self.error = ASKED_FOR
            return
        for key, payload in zip(self.blocks.keys, self.payload, strict=True):
            try:
                store.write(key, payload)
            except BlockStoreError as error:
                self.error = str(error)
                return

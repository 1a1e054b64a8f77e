"""Which requests share a prefix: worked out from keyed block hashes, which are not stored.

An engine sends with each arrival, each new turn of a session and each end the hashes of a request's
full blocks: 8 bytes little-endian that say how many tokens a block has, then 8 bytes a block. They
are chained, so equal hashes mean equal tokens from the start on, under equal keys (adapter, cache
salt, encoder items). The tree remembers who last had each block; the deepest block that somebody
else had is the longest shared prefix.

Memory is bounded: the requests that were seen longest ago are forgotten first, with the blocks that
nobody else has had since. From then on the two columns speak of the remembered requests alone: a
prefix that was shared only with a forgotten one counts as new.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.ring.batch import Position, split_blob
from telemetry.ring.reader import RingReader

MAX_BLOCKS = 1 << 17
"""Blocks that are remembered of one engine: some 17 MB, or two million tokens in blocks of 16."""

_WORD = 8


@dataclass(frozen=True, slots=True)
class Shared:
    """The longest shared prefix: with whom (None: with nobody), and how many tokens."""

    prefix_request: int | None
    num_shared_tokens: int


@dataclass(slots=True)
class _Known:
    """What is remembered of a request: its blocks, and what it was found to share."""

    chain: Sequence[int]
    shared: Shared


class PrefixTree:
    """The blocks of one engine's requests, and who last had each.

    Invariants:
        Where a block is remembered, all blocks before it are.
        An event is answered once: read again, after a flush that failed, it gets the same answer.
    """

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self.next_seq = 0
        """Events before it are in the tree."""
        self._max_blocks = max_blocks
        self._owners: dict[int, int] = {}
        self._known: dict[int, _Known] = {}
        self._answers: dict[int, Shared] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks that are remembered."""
        return len(self._owners)

    def share(self, seq: int, request: int, hashes: bytes) -> Shared:
        """Returns what a request shares with others, and remembers its blocks.

        Args:
            seq: number of the event that brought the hashes.
        """
        answer = self._answers.get(seq)
        if answer is None:
            answer = self._answers[seq] = self._add(request, hashes)
            self.next_seq = max(self.next_seq, seq + 1)
        return answer

    def commit(self, end: int) -> None:
        """Forgets the answers to events before number `end`: they will not be read again."""
        self._answers = {seq: answer for seq, answer in self._answers.items() if seq >= end}

    def _add(self, request: int, hashes: bytes) -> Shared:
        block_size, chain = _parsed(hashes)
        known = self._known.pop(request, None)
        shared, own = Shared(None, 0), 0
        if known is not None:
            own = _num_equal(known.chain, chain)
            self._drop(request, known.chain[own:])
            if own * block_size >= known.shared.num_shared_tokens:
                shared = known.shared
        depth = self._depth(chain)
        if depth > own:
            shared = Shared(self._owners[chain[depth - 1]], depth * block_size)
        self._owners.update(dict.fromkeys(chain, request))
        self._known[request] = _Known(chain, shared)
        self._forget_oldest()
        return shared

    def _depth(self, chain: Sequence[int]) -> int:
        """Returns how many blocks of a chain are remembered; they are its first ones."""
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high) // 2
            if chain[middle] in self._owners:
                low = middle + 1
            else:
                high = middle
        return low

    def _drop(self, request: int, chain: Sequence[int]) -> None:
        for block in chain:
            if self._owners.get(block) == request:
                del self._owners[block]

    def _forget_oldest(self) -> None:
        while len(self._owners) > self._max_blocks and len(self._known) > 1:
            oldest = next(iter(self._known))
            self._drop(oldest, self._known.pop(oldest).chain)


def relearn(tree: PrefixTree, reader: RingReader, until: int) -> None:
    """Fills a new collector's tree with what a ring still holds of the events before `until`."""
    position = Position()
    while tree.next_seq < until and (batch := reader.read(position)) is not None:
        numbers = batch.events["request"].tolist()
        for seq, (request, text) in enumerate(
            zip(numbers, batch.texts, strict=True), batch.first_event
        ):
            _, hashes = split_blob(text)
            if hashes and seq < until:
                tree.share(seq, request, hashes)
        position = batch.position
        if position.events >= until:
            break
    tree.next_seq = max(tree.next_seq, until)
    tree.commit(until)


def _parsed(hashes: bytes) -> tuple[int, Sequence[int]]:
    words = array("Q", hashes[: len(hashes) // _WORD * _WORD])
    return (words[0], words[1:]) if words else (0, words)


def _num_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many blocks two chains have in common: equal ones are the first."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high) // 2
        if one[middle] == other[middle]:
            low = middle + 1
        else:
            high = middle
    return low

"""Which requests share a prefix, or text: worked out from keyed hashes, which are not stored.

An engine sends with each arrival, each new turn of a session and each end the hashes of a request's
full blocks: 8 bytes little-endian that say how many tokens a block has, then 8 bytes a block. They
are chained, so equal hashes mean equal tokens from the start on, under equal keys (adapter, cache
salt, encoder items). The tree remembers who last had each block; the deepest block that somebody
else had is the longest shared prefix.

With an arrival may come as many hashes of what is in these blocks alone (`content_hashes`). A block
behind the shared prefix whose content an earlier request's prompt had, anywhere, is one that the
prefix cache cannot find: it stood elsewhere, or under other keys.

Memory is bounded: the requests that were seen longest ago are forgotten first, with the blocks and
the contents that nobody else has had since. From then on the columns speak of the remembered
requests alone: a prefix, or a text, that was shared only with a forgotten one counts as new.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from telemetry.ring.batch import Position, split_blob
from telemetry.ring.reader import RingReader

MAX_BLOCKS = 1 << 17
"""Blocks that are remembered of one engine, and as many contents: some 34 MB with both, or two
million tokens in blocks of 16."""
MAX_WORDS = 1 << 21
"""Hashes that are kept of remembered requests, 8 bytes each: those who share all their blocks."""

_WORD = 8
_WORDS_A_REQUEST = 32
"""What a request takes besides its hashes."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The longest shared prefix: with whom (None: with nobody), and how many tokens.

    `shared_content_blocks` are the blocks behind it whose content somebody had; None: not known.
    """

    prefix_request: int | None
    num_shared_tokens: int
    shared_content_blocks: int | None = None

    def columns(self) -> dict[str, int | None]:
        """Returns the columns of an event's row that say so."""
        found = {
            "prefix_request": self.prefix_request,
            "num_shared_tokens": self.num_shared_tokens,
        }
        if self.shared_content_blocks is not None:
            found["shared_content_blocks"] = self.shared_content_blocks
        return found


@dataclass(slots=True)
class _Known:
    """What is remembered of a request: its blocks, what is in them, and what it shares."""

    chain: Sequence[int]
    contents: Sequence[int]
    shared: Shared

    @property
    def num_words(self) -> int:
        """What it takes of the memory."""
        return len(self.chain) + len(self.contents) + _WORDS_A_REQUEST


class PrefixTree:
    """The blocks of one engine's requests, what is in them, and who last had each.

    Invariants:
        Where a block is remembered, all blocks before it are.
        A content is remembered only as long as the blocks of a request that had it: what is
        forgotten as a prefix is not taken for text under other keys.
        An event is answered once: read again, after a flush that failed, it gets the same answer.
    """

    def __init__(self, max_blocks: int = MAX_BLOCKS, max_words: int = MAX_WORDS) -> None:
        self.next_seq = 0
        """Events before it are in the tree."""
        self._max_blocks, self._max_words = max_blocks, max_words
        self._num_words = 0
        self._owners: dict[int, int] = {}
        self._content_owners: dict[int, int] = {}
        self._known: dict[int, _Known] = {}
        self._answers: dict[int, Shared] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks that are remembered."""
        return len(self._owners)

    @property
    def num_contents(self) -> int:
        """Contents of blocks that are remembered."""
        return len(self._content_owners)

    @property
    def num_requests(self) -> int:
        """Requests that are remembered."""
        return len(self._known)

    def share(self, seq: int, request: int, hashes: bytes, contents: bytes | None = None) -> Shared:
        """Returns what a request shares with others, and remembers its blocks.

        Args:
            seq: number of the event that brought the hashes.
            contents: hashes of what is in its first blocks; None: not told.
        """
        answer = self._answers.get(seq)
        if answer is None:
            answer = self._answers[seq] = self._add(request, hashes, contents)
            self.next_seq = max(self.next_seq, seq + 1)
        return answer

    def commit(self, end: int) -> None:
        """Forgets the answers to events before number `end`: they will not be read again."""
        self._answers = {seq: answer for seq, answer in self._answers.items() if seq >= end}

    def _add(self, request: int, hashes: bytes, told_contents: bytes | None) -> Shared:
        block_size, chain = _parsed(hashes)
        contents: Sequence[int] = () if told_contents is None else _words(told_contents)
        known = self._known.pop(request, None)
        shared, own = Shared(None, 0), 0
        if known is not None:
            own = _num_equal(known.chain, chain)
            _drop_owned(self._owners, request, known.chain[own:])
            if own * block_size >= known.shared.num_shared_tokens:
                shared = known.shared
            contents = contents or known.contents
            self._num_words -= known.num_words
        depth = self._depth(chain)
        if depth > own:
            shared = Shared(self._owners[chain[depth - 1]], depth * block_size)
        self._owners.update(dict.fromkeys(chain, request))
        known = self._known[request] = _Known(chain, contents, shared)
        self._num_words += known.num_words
        answer = shared
        if told_contents is not None:
            answer = replace(shared, shared_content_blocks=self._num_seen(contents[depth:]))
        self._content_owners.update(dict.fromkeys(contents, request))
        self._forget_oldest()
        return answer

    def _num_seen(self, contents: Sequence[int]) -> int:
        """Returns how many of a request's blocks hold what an earlier prompt held."""
        return sum(map(self._content_owners.__contains__, contents))

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

    def _forget_oldest(self) -> None:
        while self._is_full() and len(self._known) > 1:
            oldest = next(iter(self._known))
            known = self._known.pop(oldest)
            self._num_words -= known.num_words
            _drop_owned(self._owners, oldest, known.chain)
            _drop_owned(self._content_owners, oldest, known.contents)

    def _is_full(self) -> bool:
        most = max(len(self._owners), len(self._content_owners))
        return most > self._max_blocks or self._num_words > self._max_words


def relearn(tree: PrefixTree, reader: RingReader, until: int) -> None:
    """Fills a new collector's tree with what a ring still holds of the events before `until`."""
    position = Position()
    while tree.next_seq < until and (batch := reader.read(position)) is not None:
        numbers = batch.events["request"].tolist()
        for seq, (request, text, contents) in enumerate(
            zip(numbers, batch.texts, batch.contents, strict=True), batch.first_event
        ):
            _, hashes = split_blob(text)
            if hashes and seq < until:
                tree.share(seq, request, hashes, contents)
        position = batch.position
        if position.events >= until:
            break
    tree.next_seq = max(tree.next_seq, until)
    tree.commit(until)


def _parsed(hashes: bytes) -> tuple[int, Sequence[int]]:
    words = _words(hashes)
    return (words[0], words[1:]) if words else (0, words)


def _words(hashes: bytes) -> array[int]:
    return array("Q", hashes[: len(hashes) // _WORD * _WORD])


def _drop_owned(owners: dict[int, int], request: int, hashes: Sequence[int]) -> None:
    """Forgets those of a request's hashes that nobody else has had since."""
    for each in hashes:
        if owners.get(each) == request:
            del owners[each]


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

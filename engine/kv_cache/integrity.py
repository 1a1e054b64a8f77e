"""Whether the KV cache's books are right: pool, block tables, progress, and the keys of blocks.

The plain check compares the books with each other. The deep one also works the key of every cached
block that a request holds out anew, from the request's tokens: a wrong key would one day give a
prompt the KV of another. Cached blocks that nobody holds have no tokens left to compare with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain as chained

from engine.kv_cache.block_index import BlockKey
from engine.kv_cache.group import NULL_BLOCK, KVGroup
from engine.kv_cache.pool_books import PoolBooks, more_like
from engine.kv_cache.prefix_cache import PrefixCache
from engine.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class KVReport:
    """The books' sums, and every disagreement found.

    `num_references` are references to blocks, `num_table_entries` occurrences in block tables: they
    are equal in a healthy cache. `num_blocks_rehashed` are the cached blocks whose keys were worked
    out anew; None if that was not asked for.
    """

    num_usable_blocks: int
    num_free_unhashed_blocks: int
    num_free_cached_blocks: int
    num_references: int
    num_table_entries: int
    num_cached_blocks: int
    num_blocks_rehashed: int | None
    problems: tuple[str, ...]

    def raise_if_broken(self) -> None:
        """Raises AssertionError with all problems, if there are any."""
        if self.problems:
            raise AssertionError("; ".join(self.problems))


def examine_kv(
    books: PoolBooks,
    groups: Sequence[KVGroup],
    requests: Iterable[Request],
    prefixes: PrefixCache | None,
) -> KVReport:
    """Returns what the books say; with `prefixes` the keys are worked out anew."""
    requests = list(requests)
    tables = [table.blocks for group in groups for table in group.tables.values()]
    entries = Counter(chained.from_iterable(tables))
    del entries[NULL_BLOCK]
    problems = [*books.problems(entries), *_about_progress(groups, requests)]
    rehashed: set[int] = set()
    if prefixes is not None:
        holders = [r for r in requests if any(r.number in group.tables for group in groups)]
        chains = {request: prefixes.fresh_keys(request) for request in holders}
        problems += _about_remembered_keys(prefixes, chains)
        problems += _about_keys(books, groups, chains, rehashed)
    return KVReport(
        num_usable_blocks=books.num_usable,
        num_free_unhashed_blocks=books.num_free - books.num_free_cached,
        num_free_cached_blocks=books.num_free_cached,
        num_references=books.num_references,
        num_table_entries=entries.total(),
        num_cached_blocks=books.num_cached,
        num_blocks_rehashed=None if prefixes is None else len(rehashed),
        problems=tuple(problems),
    )


def _about_progress(groups: Sequence[KVGroup], requests: Iterable[Request]) -> Iterator[str]:
    for request in requests:
        for group in groups:
            table = group.tables.get(request.number)
            room = 0 if table is None else len(table.blocks) * group.block_size
            if room < request.num_computed_tokens and not request.is_finished:
                yield (
                    f"computed without KV: request {request.number} has "
                    f"{request.num_computed_tokens:,} computed tokens and blocks for {room:,}"
                )


_Chains = Mapping[Request, list[BlockKey]]
"""Requests that hold blocks, and the keys of their tokens, worked out anew."""


def _about_remembered_keys(prefixes: PrefixCache, chains: _Chains) -> Iterator[str]:
    for request, chain in chains.items():
        remembered = prefixes.remembered_keys(request)
        if list(remembered) != chain[: len(remembered)]:
            yield f"request {request.number}: its remembered keys are not those of its tokens"


def _about_keys(
    books: PoolBooks, groups: Sequence[KVGroup], chains: _Chains, rehashed: set[int]
) -> Iterator[str]:
    """Compares the keys of held blocks with their tokens; notes in `rehashed` which they were."""
    wrong = []
    for request, chain in chains.items():
        for group in groups:
            table = group.tables.get(request.number)
            for index, block in enumerate(() if table is None else table.blocks):
                key = books.keys[block] if 0 < block <= books.num_usable else None
                if key is None:
                    continue
                rehashed.add(block)
                if not group.may_have_key(chain, index, key):
                    wrong.append(f"block {block} (number {index} of request {request.number})")
    if wrong:
        yield f"{wrong[0]}: its key is not that of the tokens in it{more_like(wrong)}"

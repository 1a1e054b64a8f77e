"""What the KV blocks would really contain: who wrote what, and whether the reader wanted that.

A slot of a block holds what a token at that position, behind exactly those tokens before it, gives.
Each step that is executed reads the slots of all positions before its own and writes its own. To
read anything but what this very prefix gives is the worst that a scheduler can do, and no counter
shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.kv_cache import BlockIds
from engine.request import Request
from engine.scheduler import SchedulerOutput

if TYPE_CHECKING:
    from tests.engine.play.player import Player

Content = tuple[object, ...]
UNKNOWN: Content = ("unknown",)
Placed = tuple[int, list[list[int]]]
"""Where a request's scheduled tokens start, and its block tables."""


class KVMemory:
    """The memory of one engine, driven by the scheduler's deltas alone."""

    def __init__(self) -> None:
        self._tables: dict[str, list[list[int]]] = {}
        self._slots: dict[tuple[int, int, int], Content] = {}
        """Content by group, block and offset."""
        self._steps: dict[int, dict[str, Placed]] = {}
        """Start and block tables of each request of the steps that are decided."""

    def scheduled(self, play: Player, output: SchedulerOutput) -> None:
        """Follows the block tables, and checks that they cover what is scheduled."""
        starts = {}
        for new in output.scheduled_new_reqs:
            self._tables[new.request_id] = [list(blocks) for blocks in new.block_ids]
            starts[new.request_id] = new.num_computed_tokens
        for cached in output.scheduled_cached_reqs:
            self._follow(cached.request_id, cached.new_block_ids, replaces=cached.resumed)
            starts[cached.request_id] = cached.num_computed_tokens
        self._steps[output.step] = step = {}
        for name, count in output.num_scheduled_tokens.items():
            tables = self._tables[name]
            for group, blocks in zip(self._groups(play), tables, strict=True):
                end = starts[name] + count
                assert len(blocks) * group.block_size >= end, f"{name}: no block for {end} tokens"
            step[name] = (starts[name], [list(blocks) for blocks in tables])
        self._check_writers(play, output)

    def executed(
        self, play: Player, output: SchedulerOutput, reports: Mapping[str, frozenset]
    ) -> None:
        """Reads and writes as the model would, in the order in which steps are executed."""
        step = self._steps.pop(output.step)
        invalid = reports["invalid_block_ids"]
        for name in output.num_scheduled_tokens:
            self._load(play, name, output, step[name])
        for name, count in output.num_scheduled_tokens.items():
            self._write(play, name, count, output, step[name], invalid)
        for name in output.num_scheduled_tokens:
            self._read(play, name, output, step[name], invalid)
        for name in reports["finished_recving"]:
            self._receive(play, name, reports)
        for place in [place for place in self._slots if place[1] in invalid]:
            self._slots[place] = UNKNOWN

    # --------------------------------------------------------------------------------- in detail

    def _follow(self, name: str, blocks: BlockIds | None, *, replaces: bool) -> None:
        if replaces:
            assert blocks is not None
            self._tables[name] = [list(group) for group in blocks]
        elif blocks is not None:
            for table, fresh in zip(self._tables[name], blocks, strict=True):
                table += fresh

    def _groups(self, play: Player) -> tuple:
        return play.scenario.config.cache.kv_groups

    def _check_writers(self, play: Player, output: SchedulerOutput) -> None:
        """No two requests of a step write into the same block, and nobody into the null block."""
        writers: dict[int, str] = {}
        for name, (start, tables) in self._steps[output.step].items():
            end = start + output.num_scheduled_tokens[name]
            for group, blocks in zip(self._groups(play), tables, strict=True):
                for block in blocks[start // group.block_size : -(-end // group.block_size)]:
                    assert block != 0, f"{name} writes into the null block"
                    other = writers.setdefault(block, name)
                    assert other == name, f"{name} and {other} write into block {block}"

    def _write(
        self,
        play: Player,
        name: str,
        count: int,
        output: SchedulerOutput,
        place: Placed,
        invalid: frozenset[int],
    ) -> None:
        """Writes a request's scheduled positions; what is computed from rubbish is rubbish."""
        start, tables = place
        drafts = output.scheduled_spec_decode_tokens.get(name, [])
        contents = _contents(play.requests[name], start, start + count, drafts, output.step)
        if invalid & {block for blocks in tables for block in blocks}:
            contents[start:] = [UNKNOWN] * count
        for index, (group, blocks) in enumerate(zip(self._groups(play), tables, strict=True)):
            for position in range(start, start + count):
                block, offset = divmod(position, group.block_size)
                self._slots[index, blocks[block], offset] = contents[position]

    def _read(
        self,
        play: Player,
        name: str,
        output: SchedulerOutput,
        place: Placed,
        invalid: frozenset[int],
    ) -> None:
        """Checks what a request's first scheduled token sees of the positions before it."""
        start, tables = place
        if invalid & {block for blocks in tables for block in blocks}:
            return
        if _is_over(play.requests[name], output.step):
            return
        contents = _contents(play.requests[name], start, start, [], output.step)
        for index, (group, blocks) in enumerate(zip(self._groups(play), tables, strict=True)):
            first = 0 if group.sliding_window is None else start - group.sliding_window + 1
            for position in range(max(0, first), start):
                block, offset = divmod(position, group.block_size)
                seen = self._slots.get((index, blocks[block], offset))
                assert contents[position] in (UNKNOWN, seen), (
                    f"{name} reads position {position} in block {blocks[block]} of group {index}, "
                    "and it is not what it needs"
                )

    def _load(
        self,
        play: Player,
        name: str,
        output: SchedulerOutput,
        place: Placed,
    ) -> None:
        """Fills what a synchronous load brings, from the local hit to where the step begins."""
        if not output.num_external_tokens.get(name):
            return
        start, tables = place
        local = output.num_prefix_hit_tokens[name] or 0
        self._fill(play, play.requests[name], local, start, tables)

    def _receive(self, play: Player, name: str, reports: Mapping[str, frozenset]) -> None:
        """Fills what an asynchronous load has brought."""
        request = play.scheduler.requests.get(name)
        if request is None or name in reports["failed_recving"]:
            return
        local = play.local_hits.get(name, 0)
        tables = [list(blocks) for blocks in play.scheduler.kv.block_ids(request)]
        self._fill(play, request, local, request.num_computed_tokens, tables)

    def _fill(
        self, play: Player, request: Request, start: int, end: int, tables: list[list[int]]
    ) -> None:
        contents = _contents(request, end, end, [], -1)
        for index, (group, blocks) in enumerate(zip(self._groups(play), tables, strict=True)):
            for position in range(start, end):
                block = blocks[position // group.block_size]
                if block:
                    self._slots[index, block, position % group.block_size] = contents[position]


def _is_over(request: Request, step: int) -> bool:
    """Whether a step of a session is void: its turn may have ended, and new input followed."""
    return request.session is not None and step in request.stale


def _contents(
    request: Request, start: int, end: int, drafts: list[int], step: int
) -> list[Content]:
    """Returns what each of the first `end` positions gives; unknown beyond a turn's end."""
    token_ids = [*request.token_ids, *drafts]
    chain: Content = (request.adapter, request.cache_salt)
    contents = []
    for position in range(end):
        if position >= len(token_ids) or (position >= start and _is_over(request, step)):
            contents += [UNKNOWN] * (end - position)
            break
        items = tuple(
            (item.key, position - item.position)
            for item in request.encoder_items
            if item.position <= position < item.end
        )
        chain = (hash(chain), token_ids[position], items)
        contents.append(chain)
    return contents

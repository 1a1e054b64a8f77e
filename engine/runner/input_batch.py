"""The persistent input batch: what the runner knows of each request, in numpy.

Driven by the scheduler's deltas alone. A request takes a row when it is new or resumed, keeps that
row while it runs, and gives it back when it is preempted or finished. What a preempted request
needs later (its sampling) stays; its tokens and blocks come again with the resumption. A session
comes as new with each turn: its row is replaced, and has to go on where the last turn ended.

Drafts are run behind a request's known tokens and never become known themselves: what was right
of them comes back as sampled tokens, and the rest is overwritten, in the row and in the KV cache.

Each KV group has block tables of its own. Blocks that a sliding window has passed are given back
without a word: they stay in the table here, and attention does not look at them.

Not responsible for: tensors, the model, sampling.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engine.kv_cache import BlockIds
from engine.runner.batch_error import BatchError
from engine.runner.batch_inputs import BatchInputs
from engine.runner.grouping import batch_order
from engine.scheduler.decode_order import DecodeOrder
from engine.scheduler.output import (
    CachedRequestData,
    DecodeBatch,
    NewRequestData,
    SchedulerOutput,
)

IntArray = npt.NDArray[np.int64]


class InputBatch:
    """Rows of requests: tokens, block tables, progress.

    Args:
        max_num_seqs: rows.
        max_model_len: longest sequence, prompt and outputs.
        block_size: tokens of a KV block, the same in all groups.
        num_groups: KV groups.

    Invariants:
        a row's tokens are `token_ids[row, :num_tokens[row]]`, its blocks in each group
        `block_tables[group, row, :num_blocks[group, row]]` with 0 behind them;
        `num_computed_tokens <= num_tokens`. `num_draft_computed_tokens` is a draft model's, which
        sets it after each step: tokens, and drafts behind them, whose KV it has.
    """

    def __init__(
        self, *, max_num_seqs: int, max_model_len: int, block_size: int, num_groups: int = 1
    ) -> None:
        self.block_size = block_size
        self.num_groups = num_groups
        self.token_ids = np.zeros((max_num_seqs, max_model_len + 1), np.int32)
        max_blocks = -(-max_model_len // block_size)
        self.block_tables = np.zeros((num_groups, max_num_seqs, max_blocks), np.int32)
        self.num_blocks = np.zeros((num_groups, max_num_seqs), np.int64)
        self.num_tokens = np.zeros(max_num_seqs, np.int64)
        self.num_prompt_tokens = np.zeros(max_num_seqs, np.int64)
        self.num_computed_tokens = np.zeros(max_num_seqs, np.int64)
        self.num_draft_computed_tokens = np.zeros(max_num_seqs, np.int64)
        self._rows: dict[str, int] = {}
        self._away: set[str] = set()
        self.void: set[str] = set()
        """Requests whose last step does not count; see `make_void`."""
        self._free_rows = list(range(max_num_seqs))
        self._decode_order: DecodeOrder | None = None
        self._decode_rows: IntArray = np.zeros(0, np.int64)

    @property
    def request_ids(self) -> frozenset[str]:
        """Requests that hold a row."""
        return frozenset(self._rows)

    def row_of(self, request_id: str) -> int:
        """Returns the row of a request.

        Raises:
            BatchError: it has none.
        """
        row = self._rows.get(request_id)
        if row is None:
            raise BatchError(request_id, "is scheduled but is not in the batch")
        return row

    def apply(self, output: SchedulerOutput) -> None:
        """Brings the batch to what a step needs: departures first, then arrivals and changes.

        Raises:
            BatchError: the delta contradicts the batch.
        """
        for request_id in output.preempted_req_ids:
            if not self._release(request_id):
                raise BatchError(request_id, "was preempted but is not in the batch")
            self._away.add(request_id)
        for request_id in output.finished_req_ids:
            self._release(request_id)  # it may never have run
            self._away.discard(request_id)
        for new in output.scheduled_new_reqs:
            self._add_new(new)
        for cached in output.other_cached_reqs:
            if cached.resumed:
                self._add_resumed(cached)
        if output.decodes is not None:
            self._extend_decodes(output.decodes)
        self._extend([cached for cached in output.other_cached_reqs if not cached.resumed])

    def prepare(
        self,
        num_scheduled_tokens: Mapping[str, int],
        drafts: Mapping[str, Sequence[int]] | None = None,
    ) -> BatchInputs:
        """Returns the model's inputs for the scheduled tokens.

        Args:
            drafts: those of the scheduled tokens that are drafts, of requests that have some.

        Raises:
            BatchError: a request is unknown, or has not the tokens or the blocks for it.
        """
        request_ids = tuple(num_scheduled_tokens)
        scheduled = np.fromiter(num_scheduled_tokens.values(), np.int64, len(request_ids))
        rows = np.array([self.row_of(request_id) for request_id in request_ids])
        seq_lens = self.num_computed_tokens[rows] + scheduled
        num_drafts = np.zeros_like(scheduled)
        if drafts:
            num_drafts[:] = [len(drafts.get(request_id, ())) for request_id in request_ids]
        self._check_covered(request_ids, rows, scheduled, seq_lens, num_drafts)
        for request_id, token_ids in (drafts or {}).items():
            self._write_drafts(self.row_of(request_id), token_ids)
        order = batch_order(scheduled, seq_lens)
        return self.flatten(
            tuple(request_ids[i] for i in order.tolist()),
            rows[order],
            scheduled[order],
            seq_lens[order],
            drafts=drafts,
        )

    def commit(self, inputs: BatchInputs, sampled: Sequence[Sequence[int]]) -> None:
        """Notes that a step was computed, and its tokens: those of each sampling sequence.

        A sequence whose drafts were not all right has computed fewer tokens than it ran.
        """
        self.num_computed_tokens[inputs.rows] = inputs.seq_lens
        rows = inputs.rows[inputs.sampling_seqs]
        if not inputs.draft_token_ids:
            self.token_ids[rows, self.num_tokens[rows]] = [token_ids[0] for token_ids in sampled]
            self.num_tokens[rows] += 1
            return
        counts = np.array([len(token_ids) for token_ids in sampled], np.int64)
        self.num_computed_tokens[rows] -= inputs.num_drafts - (counts - 1)
        for row, token_ids in zip(rows.tolist(), sampled, strict=True):
            start = self.num_tokens[row]
            self.token_ids[row, start : start + len(token_ids)] = token_ids
        self.num_tokens[rows] += counts

    def flatten(
        self,
        request_ids: tuple[str, ...],
        rows: IntArray,
        query_lens: IntArray,
        seq_lens: IntArray,
        *,
        drafts: Mapping[str, Sequence[int]] | None = None,
    ) -> BatchInputs:
        """Returns the inputs of rows that run their tokens up to `seq_lens`, in `batch_order`."""
        query_start = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(query_lens, out=query_start[1:])
        token_rows = np.repeat(rows, query_lens)
        # A sequence's positions count up from its computed tokens, so flat index minus start.
        positions = np.arange(query_start[-1]) + np.repeat(
            seq_lens - query_lens - query_start[:-1], query_lens
        )
        blocks, offsets = np.divmod(positions, self.block_size)
        max_blocks = -(-int(seq_lens.max()) // self.block_size)
        by_place = {}
        if drafts:
            by_place = {i: drafts[name] for i, name in enumerate(request_ids) if name in drafts}
        num_drafts = np.zeros(len(rows), np.int64)
        num_drafts[list(by_place)] = [len(token_ids) for token_ids in by_place.values()]
        sampling_seqs = np.flatnonzero(seq_lens - num_drafts == self.num_tokens[rows])
        return BatchInputs(
            request_ids=request_ids,
            rows=rows,
            token_ids=self.token_ids[token_rows, positions].astype(np.int64),
            positions=positions,
            slot_mapping=self.block_tables[:, token_rows, blocks] * np.int64(self.block_size)
            + offsets,
            query_start=query_start,
            seq_lens=seq_lens,
            block_tables=self.block_tables[:, rows, :max_blocks],
            sampling_seqs=sampling_seqs,
            num_drafts=num_drafts[sampling_seqs],
            draft_token_ids=by_place,
        )

    def _write_drafts(self, row: int, token_ids: Sequence[int]) -> None:
        """Puts drafts behind a row's known tokens; a placeholder runs as token 0."""
        start = self.num_tokens[row]
        self.token_ids[row, start : start + len(token_ids)] = np.maximum(token_ids, 0)

    def _check_covered(
        self,
        request_ids: tuple[str, ...],
        rows: IntArray,
        scheduled: IntArray,
        seq_lens: IntArray,
        num_drafts: IntArray,
    ) -> None:
        num_blocks = self.num_blocks[:, rows].min(axis=0)
        num_short = self.num_tokens[rows] + num_drafts - seq_lens
        wrong = (
            (scheduled < 1)
            | (num_short < 0)
            | ((num_short > 0) & (num_drafts > 0))
            | (seq_lens > num_blocks * self.block_size)
            | (seq_lens >= self.token_ids.shape[1])
        )
        if wrong.any():
            i = int(np.argmax(wrong))
            behind = f" and {num_drafts[i]} drafts" if num_drafts[i] else ""
            raise BatchError(
                request_ids[i],
                f"was scheduled {scheduled[i]} tokens, up to token {seq_lens[i]}, but has "
                f"{self.num_tokens[rows[i]]} tokens{behind} and {num_blocks[i]} blocks "
                f"of {self.block_size}",
            )

    def _add_new(self, new: NewRequestData) -> None:
        """Takes in a request, or the next turn of a session that the batch knows."""
        if new.request_id in self._rows:
            self._check_continues(new)
            self._release(new.request_id)
        self._away.discard(new.request_id)
        self._place(
            new.request_id,
            [*new.prompt_token_ids, *new.output_token_ids],
            len(new.output_token_ids),
            new.num_computed_tokens,
            new.block_ids,
        )

    def _check_continues(self, new: NewRequestData) -> None:
        """Refuses a request that came again, unless it goes on where the batch left it."""
        row, computed = self._rows[new.request_id], new.num_computed_tokens
        goes_on = (
            0 < computed <= self.num_computed_tokens[row]
            and list(new.prompt_token_ids[:computed]) == self.token_ids[row, :computed].tolist()
            and len(new.block_ids) == self.num_groups
            and all(self._holds(group, row, blocks) for group, blocks in enumerate(new.block_ids))
        )
        if not goes_on:
            raise BatchError(
                new.request_id,
                f"came as new but is known, and its {computed} computed tokens and their blocks "
                "are not those of a session's last turn",
            )

    def _holds(self, group: int, row: int, blocks: Sequence[int]) -> bool:
        """Whether a block table begins with a row's; a window may have given blocks back since."""
        held = self.block_tables[group, row, : self.num_blocks[group, row]].tolist()
        pairs = zip(held, blocks, strict=False)
        return len(blocks) >= len(held) and all(new in (0, old) for old, new in pairs)

    def _add_resumed(self, cached: CachedRequestData) -> None:
        if cached.request_id not in self._away:
            raise BatchError(cached.request_id, "was resumed but had not been preempted")
        if cached.all_token_ids is None or cached.new_block_ids is None:
            raise BatchError(cached.request_id, "was resumed without all its tokens and blocks")
        self._away.remove(cached.request_id)
        self._place(
            cached.request_id,
            cached.all_token_ids,
            cached.num_output_tokens,
            cached.num_computed_tokens,
            cached.new_block_ids,
        )

    def _place(
        self,
        request_id: str,
        token_ids: Sequence[int],
        num_output_tokens: int,
        num_computed_tokens: int,
        block_ids: BlockIds,
    ) -> None:
        """Puts a request into a free row."""
        if not self._free_rows:
            raise BatchError(
                request_id, f"does not fit: all {len(self.num_tokens)} rows (max_num_seqs) are used"
            )
        if len(token_ids) >= self.token_ids.shape[1]:
            raise BatchError(
                request_id,
                f"has {len(token_ids)} tokens but max_model_len is {self.token_ids.shape[1] - 1}",
            )
        row = self._rows[request_id] = heapq.heappop(self._free_rows)
        self.token_ids[row, : len(token_ids)] = token_ids
        self.num_tokens[row] = len(token_ids)
        self.num_prompt_tokens[row] = len(token_ids) - num_output_tokens
        self.num_computed_tokens[row] = num_computed_tokens
        self.num_draft_computed_tokens[row] = num_computed_tokens
        self._append_blocks(row, request_id, block_ids)

    def make_void(self, invalid_block_ids: Collection[int]) -> None:
        """Notes that blocks hold no KV: what was computed from them in this step does not count.

        The scheduler says with a request's next tokens how much of it stays.
        """
        invalid = list(invalid_block_ids)
        for request_id, row in self._rows.items():
            if np.isin(self.block_tables[:, row, : self.num_blocks[:, row].max()], invalid).any():
                self.void.add(request_id)

    def _go_back(self, cached: CachedRequestData) -> None:
        """Takes back what a void step computed, as far as the scheduler says."""
        row = self.row_of(cached.request_id)
        num_outputs = cached.num_output_tokens - len(cached.new_token_ids)
        self.num_tokens[row] = self.num_prompt_tokens[row] + num_outputs
        self.num_computed_tokens[row] = cached.num_computed_tokens
        self.num_draft_computed_tokens[row] = min(
            self.num_draft_computed_tokens[row], cached.num_computed_tokens
        )
        self.void.discard(cached.request_id)

    def _extend_decodes(self, decodes: DecodeBatch) -> None:
        """Does what `_extend` does, with columns; what is out of the ordinary is told one by one.

        Who they are seldom changes, so their rows are looked up once for as long as they last.
        """
        if decodes.order is not self._decode_order:
            self._decode_order = decodes.order
            self._decode_rows = np.array([self.row_of(name) for name in decodes.request_ids])
        rows = self._decode_rows
        differ = (self.num_computed_tokens[rows] != decodes.num_computed_tokens) | (
            self.num_tokens[rows] != decodes.num_tokens
        )
        if self.void or differ.any():
            self._extend(list(decodes.as_cached_requests()))
            return
        for i in decodes.new_blocks:
            self._append_blocks(int(rows[i]), decodes.request_ids[i], decodes.blocks_of(i))

    def _extend(self, running: list[CachedRequestData]) -> None:
        """Gives running requests their new blocks, once their progress is agreed upon."""
        for cached in running if self.void else ():
            if cached.request_id in self.void:
                self._go_back(cached)
        for cached in running:
            if cached.new_token_ids:
                self._append_tokens(cached.request_id, cached.new_token_ids)
        rows = np.array([self.row_of(cached.request_id) for cached in running], np.int64)
        computed = np.array([cached.num_computed_tokens for cached in running], np.int64)
        outputs = np.array([cached.num_output_tokens for cached in running], np.int64)
        own_outputs = self.num_tokens[rows] - self.num_prompt_tokens[rows]
        wrong = (self.num_computed_tokens[rows] != computed) | (own_outputs != outputs)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise BatchError(
                running[i].request_id,
                f"has {computed[i]} computed and {outputs[i]} output tokens for the scheduler but "
                f"{self.num_computed_tokens[rows[i]]} and {own_outputs[i]} for the runner",
            )
        for row, cached in zip(rows.tolist(), running, strict=True):
            if cached.new_block_ids is not None:
                self._append_blocks(row, cached.request_id, cached.new_block_ids)

    def _append_tokens(self, request_id: str, token_ids: Sequence[int]) -> None:
        """Adds outputs that became known without being sampled."""
        row = self.row_of(request_id)
        start = int(self.num_tokens[row])
        end = start + len(token_ids)
        if end > self.token_ids.shape[1]:
            raise BatchError(
                request_id,
                f"has {end} tokens but max_model_len is {self.token_ids.shape[1] - 1}",
            )
        self.token_ids[row, start:end] = token_ids
        self.num_tokens[row] = end

    def _release(self, request_id: str) -> bool:
        """Frees the row of a request; returns whether it had one."""
        row = self._rows.pop(request_id, None)
        if row is None:
            return False
        self._decode_order = None
        self.void.discard(request_id)
        self.block_tables[:, row, : self.num_blocks[:, row].max()] = 0
        self.num_blocks[:, row] = self.num_tokens[row] = self.num_computed_tokens[row] = 0
        heapq.heappush(self._free_rows, row)
        return True

    def _append_blocks(self, row: int, request_id: str, block_ids: BlockIds) -> None:
        if len(block_ids) != self.num_groups:
            raise BatchError(
                request_id,
                f"has {len(block_ids)} KV groups but the runner has {self.num_groups}",
            )
        for group, blocks in enumerate(block_ids):
            start = int(self.num_blocks[group, row])
            end = start + len(blocks)
            if end > self.block_tables.shape[2]:
                raise BatchError(
                    request_id,
                    f"has {end} blocks but max_model_len allows {self.block_tables.shape[2]}",
                )
            self.block_tables[group, row, start:end] = blocks
            self.num_blocks[group, row] = end

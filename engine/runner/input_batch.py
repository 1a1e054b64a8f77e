"""The persistent input batch: what the runner knows of each request, in numpy.

Driven by the scheduler's deltas alone. A request takes a row when it is new or resumed, keeps that
row while it runs, and gives it back when it is preempted or finished. What a preempted request
needs later (its sampling) stays; its tokens and blocks come again with the resumption. A session
comes as new with each turn: its row is replaced, and has to go on where the last turn ended.

Drafts are run behind a request's known tokens and never become known themselves: what was right
of them comes back as sampled tokens, and the rest is overwritten, in the row and in the KV cache.

Not responsible for: the rows themselves (`batch_rows`), tensors, the model, sampling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from engine.runner.batch_error import BatchError
from engine.runner.batch_inputs import BatchInputs
from engine.runner.batch_rows import BatchRows, IntArray
from engine.runner.grouping import batch_order
from engine.scheduler.decode_order import DecodeOrder
from engine.scheduler.output import (
    CachedRequestData,
    DecodeBatch,
    NewRequestData,
    SchedulerOutput,
)


class InputBatch(BatchRows):
    """The rows that the scheduler's deltas make; see `BatchRows` for what they hold."""

    def __init__(
        self, *, max_num_seqs: int, max_model_len: int, block_size: int, num_groups: int = 1
    ) -> None:
        super().__init__(
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            block_size=block_size,
            num_groups=num_groups,
        )
        self.void: set[str] = set()
        """Requests whose last step does not count; see `make_void`."""
        self._away: set[str] = set()
        self._decode_order: DecodeOrder | None = None
        self._decode_rows: IntArray = np.zeros(0, np.int64)

    def apply(self, output: SchedulerOutput) -> None:
        """Brings the batch to what a step needs: departures first, then arrivals and changes.

        Raises:
            BatchError: the delta contradicts the batch.
        """
        for request_id in output.preempted_req_ids:
            if not self.release(request_id):
                raise BatchError(request_id, "was preempted but is not in the batch")
            self._away.add(request_id)
        for request_id in output.finished_req_ids:
            self.release(request_id)  # it may never have run
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
        self.check_covered(request_ids, rows, scheduled, seq_lens, num_drafts)
        for request_id, token_ids in (drafts or {}).items():
            self.write_drafts(self.row_of(request_id), token_ids)
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

    def _add_new(self, new: NewRequestData) -> None:
        """Takes in a request, or the next turn of a session that the batch knows."""
        if new.request_id in self._rows:
            self._check_continues(new)
            self.release(new.request_id)
        self._away.discard(new.request_id)
        self.place(
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
        self.place(
            cached.request_id,
            cached.all_token_ids,
            cached.num_output_tokens,
            cached.num_computed_tokens,
            cached.new_block_ids,
        )

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
            self.append_blocks(int(rows[i]), decodes.request_ids[i], decodes.blocks_of(i))

    def _extend(self, running: list[CachedRequestData]) -> None:
        """Gives running requests their new blocks, once their progress is agreed upon."""
        for cached in running if self.void else ():
            if cached.request_id in self.void:
                self._go_back(cached)
        for cached in running:
            if cached.new_token_ids:
                self.append_tokens(cached.request_id, cached.new_token_ids)
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
                self.append_blocks(row, cached.request_id, cached.new_block_ids)

    def release(self, request_id: str) -> bool:
        """Frees the row of a request; returns whether it had one."""
        self._decode_order = None
        self.void.discard(request_id)
        return super().release(request_id)

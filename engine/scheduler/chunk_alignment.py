"""Chunk alignment: where a chunk of a prompt may end in a hybrid model.

A state-space layer keeps one state a sequence, not one a token. It can be taken up again, by a
prefix hit or another chunk, only where it was kept: at a block's end. So a chunk is cut back to a
multiple of the alignment; where nothing is left of it the request gets nothing in this step.

    alignment 16     |---------------|---------------|--------
    25 tokens fit    [ given 16      ]...9 not......
    9 tokens fit     nothing is given
    the last chunk   ends where the known tokens do

A decode, with or without drafts, reaches its last known token and is never cut. This is simpler
than the original, which also ends a chunk early to keep the last whole block's state.
"""

from __future__ import annotations

from dataclasses import replace

from engine.request import Request
from engine.scheduler.encoder_inputs import EncoderFit
from engine.scheduler.state import SchedulerState
from telemetry.vocabulary import ZeroReason


def aligned(
    state: SchedulerState, request: Request, num_computed_tokens: int, fit: EncoderFit
) -> EncoderFit:
    """Returns what is left of a grant once it ends where a chunk may end."""
    alignment = state.config.cache.chunk_alignment
    end = num_computed_tokens + fit.num_tokens
    known = request.num_tokens + request.num_output_placeholders
    if alignment is None or fit.num_tokens <= 0 or end >= known or end % alignment == 0:
        return fit
    end -= end % alignment
    if end <= num_computed_tokens:
        return EncoderFit(0, cut_by=ZeroReason.block_alignment)
    reach = end + state.config.speculation.prefill_lookahead
    items = [index for index in fit.items if request.encoder_items[index].position < reach]
    return replace(fit, num_tokens=end - num_computed_tokens, items=items)

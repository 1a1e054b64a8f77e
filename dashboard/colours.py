"""One colour is one scarce resource, in every closed set, chart and theme.

Orange is KV memory, pink what a preemption costs, violet-blue sequence slots, teal the token
budget, yellow and olive the encoder, cyan and blue remote KV, white or ink an operator's act, grey
nothing to do. Blue is work done. Where one resource has several reasons, each has a shade of its
own, chosen for the largest distance (OKLab, also under colour blindness); lanes and labels tell
them apart all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

from diagnose.finding import Severity
from telemetry.vocabulary import (
    PreemptionCause,
    SkipReason,
    StopReason,
    WaitReason,
    ZeroReason,
)

Theme = Literal["dark", "light"]


@dataclass(frozen=True, slots=True)
class Colour:
    """A colour of the dark theme and its counterpart of the light one, as `#RRGGBB`."""

    dark: str
    light: str

    def of(self, theme: Theme) -> str:
        """Returns the one of a theme."""
        return self.dark if theme == "dark" else self.light


# ------------------------------------------------------------------------------------ interface

BACKGROUND = Colour("#0F1318", "#FFFFFF")
PANEL = Colour("#161C24", "#F6F7F9")
BORDER = Colour("#2A323D", "#DDE1E7")
GRID = Colour("#222A34", "#E9ECF0")
TEXT = Colour("#E8ECF1", "#17202B")
MUTED = Colour("#9AA5B4", "#5A6675")
LINK = Colour("#7CB7FF", "#1F5FBF")

# ----------------------------------------------------------------------- work, blocks and phases

USEFUL = Colour("#6C9BE6", "#3F78C9")
"""Blocks in use, useful tokens, decode."""
CACHED = Colour("#B5CFEF", "#8DAAD0")
LOST = Colour("#E659B2", "#8C1878")
"""Recomputed or lost."""
HELD = Colour("#83BDC6", "#0B6E8F")
"""Held by waiting requests, loading."""
PREFILL = Colour("#51C698", "#058790")
EVICTED = Colour("#FF8A4C", "#CF4A0A")
REJECTED_DRAFTS = Colour("#E7C536", "#4F4102")
PADDING = Colour("#B18007", "#A1A700")
UNATTRIBUTED = Colour("#8893A3", "#7A8698")
SLOTS = Colour("#8F7BF2", "#1F53AE")

# -------------------------------------------------------------------------------- closed sets

_IDLE = Colour("#3E4957", "#BCC5D1")
_TOKENS = Colour("#51C698", "#058790")
_THROTTLED = Colour("#17806F", "#0F5849")
_LOOKAHEAD = Colour("#A8D5AB", "#1F756C")
_KV = Colour("#FF8A4C", "#CF4A0A")
_CHUNKS = Colour("#8EDBE4", "#18B0BE")
_ENCODER = Colour("#FFE04A", "#79774E")
_ENCODER_CACHE = Colour("#B18007", "#A1A700")
_ALIGNMENT = Colour("#B84A13", "#CC8D7A")
_OPERATOR = Colour("#F1F4F8", "#2B3440")
_OPERATOR_MILD = Colour("#B8BBBF", "#82929D")

STOP_REASONS: dict[StopReason, Colour] = {
    StopReason.queue_empty: _IDLE,
    StopReason.token_budget: _TOKENS,
    StopReason.input_budget: Colour("#B1F6B6", "#0498BA"),
    StopReason.max_num_seqs: SLOTS,
    StopReason.max_num_active_seqs: Colour("#724DB2", "#2500AC"),
    StopReason.kv_blocks_chunk: Colour("#CC8873", "#AA3D1B"),
    StopReason.kv_blocks_whole_prompt: _KV,
    StopReason.kv_watermark: Colour("#925145", "#C9783C"),
    StopReason.kv_reserved_for_loads: Colour("#E7A280", "#970620"),
    StopReason.loaded_needs_blocks: Colour("#FF5D4D", "#B27870"),
    StopReason.preempted_this_step: LOST,
    StopReason.chunked_prefill_disabled: _CHUNKS,
    StopReason.encoder_budget: _ENCODER,
    StopReason.encoder_cache: _ENCODER_CACHE,
    StopReason.draft_padding: REJECTED_DRAFTS,
    StopReason.prefill_throttled: _THROTTLED,
    StopReason.block_alignment: _ALIGNMENT,
    StopReason.prefill_lookahead: _LOOKAHEAD,
    StopReason.paused_new: _OPERATOR_MILD,
    StopReason.paused_all: _OPERATOR,
}

SKIP_REASONS: dict[SkipReason, Colour] = {
    SkipReason.grammar_compiling: Colour("#B289F4", "#7A35C9"),
    SkipReason.grammar_failed: Colour("#9F3E99", "#5473FF"),
    SkipReason.remote_kv_loading: HELD,
    SkipReason.remote_kv_lookup_pending: Colour("#A5E3FA", "#03AAF3"),
    SkipReason.load_started: Colour("#2970C9", "#013A8C"),
    SkipReason.lora_slots: Colour("#5BA844", "#495503"),
    SkipReason.streaming_input: _OPERATOR,
    SkipReason.stale_output: Colour("#816C63", "#939292"),
    SkipReason.encoder_transfer: _ENCODER,
}

ZERO_REASONS: dict[ZeroReason, Colour] = {
    ZeroReason.token_budget: _TOKENS,
    ZeroReason.max_tokens_in_flight: _CHUNKS,
    ZeroReason.max_model_len: _OPERATOR,
    ZeroReason.pipeline_cadence: _IDLE,
    ZeroReason.encoder_budget: _ENCODER,
    ZeroReason.encoder_cache: _ENCODER_CACHE,
    ZeroReason.block_alignment: _ALIGNMENT,
    ZeroReason.prefill_lookahead: _LOOKAHEAD,
    ZeroReason.prefill_throttled: _THROTTLED,
    ZeroReason.behind_preempted: LOST,
    ZeroReason.victim_not_releasable: Colour("#FB77FD", "#B946D7"),
    ZeroReason.paused_all: _OPERATOR_MILD,
    ZeroReason.encoder_transfer: Colour("#E7C536", "#4F4102"),
}

WAIT_REASONS: dict[WaitReason, Colour] = {
    **{WaitReason.of(reason): colour for reason, colour in SKIP_REASONS.items()},
    **{
        WaitReason.of(reason): colour
        for reason, colour in STOP_REASONS.items()
        if reason is not StopReason.queue_empty
    },
    WaitReason.behind_head: UNATTRIBUTED,
    WaitReason.not_visited: Colour("#5C6878", "#A3AEBC"),
}
"""`behind_head` is drawn paler in its head's colour; its own stands where there is no head."""

PREEMPTION_CAUSES: dict[PreemptionCause, Colour] = {
    PreemptionCause.kv_full: _KV,
    PreemptionCause.priority: Colour("#C8B3FF", "#6D28D9"),
    PreemptionCause.cache_reset: _OPERATOR,
}

COLOURED: dict[type[IntEnum], Mapping[Any, Colour]] = {
    StopReason: STOP_REASONS,
    SkipReason: SKIP_REASONS,
    ZeroReason: ZERO_REASONS,
    WaitReason: WAIT_REASONS,
    PreemptionCause: PREEMPTION_CAUSES,
}
"""Every closed set that is drawn."""

BEHIND_HEAD_OPACITY = 0.75
"""How much paler the requests behind the head are drawn."""

MIN_TEXT_CONTRAST = 3.0
"""Text is never set in a fill that stands out less from the ground."""


def of_reason(enum: type[IntEnum], name: str | None, theme: Theme) -> str:
    """Returns the colour of a value by its name; a name that this version lacks is grey."""
    known = COLOURED[enum]
    member = enum.__members__.get(name or "")
    return UNATTRIBUTED.of(theme) if member is None else known[member].of(theme)


def text_colour(fill: str, theme: Theme) -> str:
    """Returns the fill where text in it can be read on the ground, else the muted text colour."""
    readable = contrast(fill, BACKGROUND.of(theme)) >= MIN_TEXT_CONTRAST
    return fill if readable else MUTED.of(theme)


def contrast(one: str, other: str) -> float:
    """Returns the contrast of two colours, from 1 to 21. Source: WCAG 2.2, contrast ratio."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


# ------------------------------------------------------------------------------------- severity

SEVERITIES: dict[Severity, tuple[str, Colour]] = {
    Severity.critical: ("◆", Colour("#FF6B6B", "#C42020")),
    Severity.high: ("▲", Colour("#FFA94D", "#B45309")),
    Severity.medium: ("■", Colour("#F5D04A", "#8A6A00")),
    Severity.info: ("●", Colour("#7CB7FF", "#1F5FBF")),
}
"""Shape and colour of each severity; the word always stands beside them."""

HEALTHY: tuple[str, Colour] = ("✓", Colour("#5DD39E", "#1B7F4B"))
NOT_MEASURED: tuple[str, Colour] = ("–", MUTED)

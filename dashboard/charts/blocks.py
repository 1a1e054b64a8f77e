"""The block map of one step: who kept, got and lost KV blocks, and what was free after each visit.

Up to `MAX_SQUARES` requests every block is a square; beyond, a request is a bar; beyond `MAX_BARS`
only requests whose blocks changed are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import AXIS_SPACE, tick_values, y_axis
from dashboard.charts.marks import Word, word_layer
from dashboard.charts.timeline import configured
from dashboard.colours import Theme
from dashboard.step_blocks import BlockMap, Visit

MAX_SQUARES = 40
MAX_BARS = 200
MAX_LEVELS = 24
"""More blocks of one request than this are a bar, too."""
MIN_COLUMN = 14
"""Pixels of a column under which its blocks are no squares."""
LEVEL = 30
MAP_HEIGHT = 190
FREE_HEIGHT = 120
LOW_HEIGHT = 70
"""Of the lower panel, with evictions written over its bars and without."""
HEADROOM, LITTLE_ROOM = 0.45, 0.2
"""Part of it that those words take."""
PADDING = {"left": AXIS_SPACE + 4, "top": 40, "right": 12, "bottom": 22}
NARROW = 480
"""Pixels of a plot up to which its titles are short."""
END_OF_SCAN = 20
"""Pixels from the foot of the lower panel to the word at the end of the scan."""
_LABEL_PX, _EVICTION_PX = 26, 66


@dataclass(frozen=True, slots=True)
class Drawn:
    """The visits that are drawn, and how."""

    visits: Sequence[Visit]
    num_all: int
    num_changed: int
    are_squares: bool

    @property
    def is_cut(self) -> bool:
        """Whether some are left out."""
        return len(self.visits) < self.num_all


def choose(blocks: BlockMap, width: int) -> Drawn:
    """Returns which visits are drawn in so many pixels, as squares or as bars."""
    visits: Sequence[Visit] = blocks.visits
    changed = [visit for visit in visits if visit.has_changed]
    if len(visits) > MAX_BARS:
        visits = changed[:MAX_BARS]
    levels = max((_height(visit) for visit in visits), default=1)
    fits = width / max(len(visits), 1) >= MIN_COLUMN
    are_squares = len(visits) <= MAX_SQUARES and levels <= MAX_LEVELS and fits
    return Drawn(visits, len(blocks.visits), len(changed), are_squares)


def block_chart(
    blocks: BlockMap, drawn: Drawn, *, width: int, theme: Theme, block_size: int | None
) -> Any:
    """Returns the map and, where the walk adds up, the free blocks after each visit.

    Args:
        blocks: the whole step.
        drawn: of `choose`, for the same width.
        width: pixels of the plot.
        theme: of the page.
        block_size: tokens of a block.
    """
    panels = [_map(drawn, width, theme, block_size)]
    if blocks.num_free is not None:
        panels.append(_free(blocks.num_free, drawn, width, theme))
    return configured(alt.vconcat(*panels, spacing=62, bounds="flush"), theme, PADDING)


def _height(visit: Visit) -> int:
    return visit.num_kept + visit.num_given + visit.num_taken


def _title(text: str, below: str, theme: Theme) -> list[Word]:
    return [
        Word(0, -26, text, colours.TEXT.of(theme), bold=True, size=13),
        Word(0, -11, below, colours.MUTED.of(theme), size=11),
    ]


def _x(count: int, field: str = "x") -> alt.X:
    scale = alt.Scale(domain=[0, max(count, 1)], nice=False)
    return alt.X(f"{field}:Q", scale=scale, axis=None)


# ------------------------------------------------------------------------------------------ map


def _map(drawn: Drawn, width: int, theme: Theme, block_size: int | None) -> Any:
    levels = max((_height(visit) for visit in drawn.visits), default=1) or 1
    height = levels * LEVEL if drawn.are_squares and levels * LEVEL <= MAP_HEIGHT else MAP_HEIGHT
    tints = {"kept": colours.USEFUL, "given": colours.PREFILL, "taken": colours.EVICTED}
    frame = pd.DataFrame(_boxes(drawn), columns=["x", "x2", "y", "y2", "kind", *_TOLD])
    frame["colour"] = frame["kind"].map({kind: tint.of(theme) for kind, tint in tints.items()})
    ticks = None if drawn.are_squares else y_axis(theme, values=tick_values(levels, 3))
    scale = alt.Scale(domain=[0, levels], nice=False)
    base = {
        "x": _x(len(drawn.visits)),
        "x2": "x2:Q",
        "y": alt.Y("y:Q", scale=scale, axis=ticks, title=None),
        "y2": "y2:Q",
        "tooltip": [alt.Tooltip(f"{name}:Q") for name in _TOLD],
    }
    there, gone = frame[frame["kind"] != "taken"], frame[frame["kind"] == "taken"]
    layers = [
        alt.Chart(there).mark_rect(cornerRadius=2).encode(color=_own_colour(), **base),
        alt.Chart(gone)
        .mark_rect(
            cornerRadius=2,
            filled=False,
            stroke=colours.EVICTED.of(theme),
            strokeDash=[2, 2] if drawn.are_squares else alt.Undefined,
            strokeWidth=1.5,
        )
        .encode(**base),
        word_layer(_map_words(drawn, width, height, levels, theme, block_size)),
    ]
    return alt.layer(*layers).properties(width=width, height=height)


_TOLD = ("request", "blocks kept", "blocks given", "blocks taken")


def _own_colour() -> alt.Color:
    return alt.Color("colour:N", scale=None)


def _boxes(drawn: Drawn) -> list[tuple[Any, ...]]:
    boxes: list[tuple[Any, ...]] = []
    edge = 0.08 if drawn.are_squares else 0.04
    for index, visit in enumerate(drawn.visits):
        told = (visit.request, visit.num_kept, visit.num_given, visit.num_taken)
        bottom = 0
        parts = (("kept", told[1]), ("given", told[2]), ("taken", told[3]))
        for kind, number in parts:
            heights = [1] * number if drawn.are_squares else [number] if number else []
            for height in heights:
                gap = 0.06 if drawn.are_squares else 0
                box = (index + edge, index + 1 - edge, bottom + gap, bottom + height - gap)
                boxes.append((*box, kind, *told))
                bottom += height
    return boxes


def _map_words(
    drawn: Drawn, width: int, height: int, levels: int, theme: Theme, block_size: int | None
) -> list[Word]:
    tokens = "" if block_size is None else f" of {block_size} tokens"
    what = f"one square = one block{tokens}" if drawn.are_squares else f"in blocks{tokens}"
    if drawn.is_cut:
        what += f"; {len(drawn.visits):,} of {drawn.num_all:,} requests: those whose blocks changed"
    column = width / max(len(drawn.visits), 1)
    order = "in the order the scheduler visits them" if width > NARROW else "in scan order"
    words = _title(f"KV blocks by request, {order}", what, theme)
    every = max(1, -(-_LABEL_PX // max(int(column), 1)))
    for index, visit in enumerate(drawn.visits):
        middle = (index + 0.5) * column
        if index % every == 0:
            number, muted = f"{visit.request}", colours.MUTED.of(theme)
            words.append(Word(middle, height + 12, number, muted, align="center", size=11))
        if visit.is_out and drawn.are_squares and _height(visit) < levels and column > 22:
            y = height * (1 - (_height(visit) + 0.5) / levels)
            orange = colours.EVICTED.of(theme)
            words.append(Word(middle, y, "out", orange, bold=True, align="center", size=11))
    return words


# ----------------------------------------------------------------------------------- free blocks


def _free(num_free: int, drawn: Drawn, width: int, theme: Theme) -> Any:
    known = [visit.num_free for visit in drawn.visits if visit.num_free is not None]
    has_words = any(visit.evicts for visit in drawn.visits)
    height = FREE_HEIGHT if has_words else LOW_HEIGHT
    top = max(num_free, *known, 1) / (1 - (HEADROOM if has_words else LITTLE_ROOM))
    narrow = 0.3 if drawn.are_squares else 0.08
    frame = pd.DataFrame(
        [
            {"x": i + narrow, "x2": i + 1 - narrow, "free": visit.num_free}
            | {"request": visit.request}
            for i, visit in enumerate(drawn.visits)
            if visit.num_free is not None
        ],
        columns=["x", "x2", "free", "request"],
    )
    ticks = y_axis(theme, values=sorted({0.0, float(num_free)}))
    bars = (
        alt.Chart(frame)
        .mark_rect(color=colours.CACHED.of(theme))
        .encode(
            x=_x(len(drawn.visits)),
            x2=alt.X2("x2:Q"),
            y=alt.Y("free:Q", scale=alt.Scale(domain=[0, top], nice=False), axis=ticks, title=None),
            y2=alt.datum(0),
            tooltip=[alt.Tooltip("request:Q"), alt.Tooltip("free:Q", title="free after its visit")],
        )
    )
    words = _title(
        "Free blocks left after each request was visited"
        if width > NARROW
        else "Free blocks after each visit",
        f"{num_free:,} free at the start of the step",
        theme,
    )
    words += _free_words(drawn, width, height, top, theme)
    return alt.layer(bars, word_layer(words)).properties(width=width, height=height)


def _free_words(drawn: Drawn, width: int, height: int, top: float, theme: Theme) -> list[Word]:
    column = width / max(len(drawn.visits), 1)
    muted, orange = colours.MUTED.of(theme), colours.EVICTED.of(theme)
    words: list[Word] = []
    last, is_low = -float(_EVICTION_PX), False
    for index, visit in enumerate(drawn.visits):
        middle = (index + 0.5) * column
        if visit.num_free is not None and column > 18:
            y = height * (1 - visit.num_free / top) - 7
            words.append(Word(middle, y, f"{visit.num_free:,}", muted, align="center", size=11))
        if not visit.evicts:
            continue
        if column <= MIN_COLUMN:
            words.append(Word(middle, 44, "▼", orange, align="center", size=9))
            continue
        is_low = middle - last < _EVICTION_PX and not is_low
        words += _eviction(middle, 26 if is_low else 2, visit, orange)
        last = middle
    return [*words, *_end_of_scan(drawn, column, height, muted)]


def _eviction(x: float, y: float, visit: Visit, colour: str) -> list[Word]:
    victims = visit.evicts
    who = "itself" if victims == (visit.request,) else ", ".join(map(str, victims[:2]))
    more = f" +{len(victims) - 2}" if len(victims) > 2 else ""
    needs = "needs –" if visit.num_needed is None else f"needs {visit.num_needed:,}"
    return [
        Word(x, y, f"{needs},", colour, align="center", size=10),
        Word(x, y + 12, f"evicts {who}{more}", colour, bold=True, align="center", size=10),
        Word(x, y + 24, "▼", colour, align="center", size=9),
    ]


def _end_of_scan(drawn: Drawn, column: float, height: int, colour: str) -> list[Word]:
    """Returns the word over the requests at the end that the scan never came to."""
    visited = [i for i, visit in enumerate(drawn.visits) if visit.num_free is not None]
    first = visited[-1] + 1 if visited else 0
    left = drawn.visits[first:]
    if not left or len(left) * column < 110:
        return []
    first_gone, last_gone = left[0].request, left[-1].request
    who = f"{len(left):,} more are"
    if len(left) == 1:
        who = f"{first_gone} is"
    elif [visit.request for visit in left] == list(range(first_gone, last_gone + 1)):
        who = f"{first_gone} to {last_gone} are"
    said = f"the scan ends here: {who} gone"
    return [Word(first * column + 8, height - END_OF_SCAN, said, colour, size=11)]

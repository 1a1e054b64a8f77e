"""The words in and above the lane of a request's life: only where there is room for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from dashboard import colours
from dashboard.charts.canvas import Canvas
from dashboard.charts.endings import Ending
from dashboard.charts.marks import Word
from dashboard.colours import Theme
from diagnose.words import NOT_MEASURED
from telemetry.vocabulary import StopReason

MARKS_HEIGHT = 22
BAR_HEIGHT = 34
LETTER = 6.3
SMALL_LETTER = 5.6
"""Pixels of a letter of 12 and of 11 px, rather more than less."""
MIN_TEXT_PX = 40
WAITS = {"queued": "queued", "preempted": "evicted, waiting"}
"""The phases in which a request waits, as people say it."""
KV_REASONS = (
    StopReason.kv_blocks_chunk,
    StopReason.kv_blocks_whole_prompt,
    StopReason.kv_watermark,
    StopReason.kv_reserved_for_loads,
    StopReason.loaded_needs_blocks,
)
"""The reasons that people call "KV blocks"."""
_KV_REASON = re.compile("|".join(sorted((r.name for r in KV_REASONS), key=len, reverse=True)))


def bar_words(canvas: Canvas, bars: pd.DataFrame) -> Iterator[Word]:
    """Yields the longest text that fits into each bar, and none into a narrow one."""
    theme = canvas.theme
    for row in bars.to_dict("records"):
        left, right = _clear_of_gaps(canvas, row["x"], row["x2"])
        if right - left < MIN_TEXT_PX or row["phase"] == "load":
            continue
        name = WAITS.get(row["phase"], row["phase"])
        why = row["why"] if row["wait"] and row["why"] != NOT_MEASURED else ""
        short = _KV_REASON.sub("kv_blocks", why)
        texts = [f"{name}: {each} {row['took']}" for each in (why, short) if each]
        texts += [f"{name} {row['took']}", *(["out " + row["took"]] if row["dashed"] else [])]
        fits = [t for t in [*texts, row["took"]] if LETTER * len(t) + 10 <= right - left]
        if fits:
            colour = colours.TEXT.of(theme) if row["wait"] else on(row["colour"], theme)
            y = MARKS_HEIGHT + BAR_HEIGHT / 2
            yield Word((left + right) / 2, y, fits[0], colour, align="center")


def _clear_of_gaps(canvas: Canvas, x: float, x2: float) -> tuple[float, float]:
    """Returns the widest part of a bar, in pixels, that no gap of the record covers."""
    parts, left = [], x
    for gap in canvas.gaps.sort_values("x").itertuples(index=False):
        if gap.x2 <= left or gap.x >= x2:
            continue
        parts.append((left, max(gap.x, left)))
        left = gap.x2
    parts.append((left, max(x2, left)))
    start, end = max(parts, key=lambda part: part[1] - part[0])
    return canvas.axis.pixel(start), canvas.axis.pixel(end)


def on(fill: str, theme: Theme) -> str:
    """Returns the colour of text upon a fill: ink or ground, whichever can be read better."""
    options = (colours.BACKGROUND.of(theme), colours.TEXT.of(theme))
    return max(options, key=lambda colour: colours.contrast(colour, fill))


def mark_words(canvas: Canvas, evictions: pd.DataFrame, request: int) -> Iterator[Word]:
    """Yields who got the blocks, where there is room before the next mark."""
    colour = colours.text_colour(colours.EVICTED.of(canvas.theme), canvas.theme)
    for row, place, room in with_room(canvas, evictions):
        said = for_whom(row, request)
        if room >= SMALL_LETTER * len(said) + 10:
            yield Word(place + 7, MARKS_HEIGHT - 10, said, colour, size=11)


def for_whom(row: dict[Any, Any], request: int) -> str:
    """Returns who got the blocks of a preemption."""
    if pd.isna(row["beneficiary"]):
        return "cache reset" if row["cause"] == "cache_reset" else f"for {NOT_MEASURED}"
    return "for itself" if int(row["beneficiary"]) == request else f"for {row['beneficiary']:,.0f}"


def with_room(
    canvas: Canvas, evictions: pd.DataFrame
) -> Iterator[tuple[dict[Any, Any], float, float]]:
    """Yields each preemption, its place, and how many pixels are free up to the next one."""
    places = [canvas.axis.pixel(x) for x in evictions["x"]]
    for i, row in enumerate(evictions.to_dict("records")):
        end = places[i + 1] if i + 1 < len(places) else canvas.axis.width + 60.0
        yield row, places[i], end - places[i]


def first_token(canvas: Canvas, rows: pd.DataFrame, evictions: pd.DataFrame) -> Iterator[Word]:
    """Yields the word at the first token, unless a preemption's words are in its way."""
    decodes = rows[(rows["phase"] == "decode") & (rows["nth"] == 1)]
    if decodes.empty:
        return
    place = canvas.axis.pixel(float(decodes["x"].iloc[0]))
    near = [canvas.axis.pixel(x) for x in evictions["x"]]
    left = place - 4 - LETTER * len("first token")
    at_left = left > 0 and not any(left - 50 < x < place - 8 for x in near)
    if not at_left and any(place - 50 < x < place + 90 for x in near):
        return
    colour = colours.text_colour(colours.PREFILL.of(canvas.theme), canvas.theme)
    x, align = (place - 4, "right") if at_left else (place + 3, "left")
    yield Word(x, MARKS_HEIGHT - 10, "first token", colour, align=align, size=11)


def ending_words(canvas: Canvas, ending: Ending) -> Iterator[Word]:
    """Yields what stands beside the lane of a request that has not ended."""
    if ending.words is not None:
        muted = colours.MUTED.of(canvas.theme)
        y = MARKS_HEIGHT + BAR_HEIGHT / 2
        yield Word(canvas.axis.width + 8, y, ending.words, muted)

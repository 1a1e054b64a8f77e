"""The panels that count per bin: preemptions by cause, and what the scheduled tokens were for."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import length_words, tick_values, y_axis
from dashboard.charts.canvas import Canvas
from dashboard.charts.marks import Label, hatching
from telemetry.vocabulary import PreemptionCause

PREEMPTIONS_HEIGHT = 84
TOKENS_HEIGHT = 84
WORD_ROOM = 0.16
"""Part of the preemptions' panel above its bars, where events are named."""
UNATTRIBUTED = "unattributed"
CAUSES = (*(cause.name for cause in PreemptionCause), UNATTRIBUTED)


def preemptions(
    canvas: Canvas, bars: pd.DataFrame, *, totals: dict[str, int], fact: str, bin_ns: int
) -> alt.LayerChart:
    """Returns preemptions per bin, stacked by cause.

    Args:
        canvas: what all panels share.
        bars: `x` (start of the bin), `cause`, `n`.
        totals: preemptions by cause, all causes in it; a zero is evidence, and printed.
        fact: what stands at the right of the title.
        bin_ns: length of a bin.
    """
    theme = canvas.theme
    tints = {cause: _cause_colour(cause, theme) for cause in CAUSES}
    stacked = _stacked(bars.rename(columns={"cause": "series"}), CAUSES, bin_ns)
    words = canvas.event_words()
    top = _top(stacked) / (1 - WORD_ROOM if words else 1)
    layer = _bars(canvas, stacked, tints, top=top)
    labels: list[Label] = []
    for cause in sorted(CAUSES, key=lambda name: -totals.get(name, 0)):
        count = totals.get(cause, 0)
        colour = colours.text_colour(_cause_colour(cause, theme), theme)
        labels.append(
            Label(
                f"{cause} {count:,}",
                colour if count else colours.MUTED.of(theme),
                bold=count > 0,
                y=10 if not labels else None,
            )
        )
    return canvas.panel(
        [layer, _unattributed(canvas, stacked, top)],
        title=f"Preemptions by cause, per {length_words(bin_ns)}",
        fact=fact,
        labels=labels,
        height=PREEMPTIONS_HEIGHT,
        more=words,
    )


def _unattributed(canvas: Canvas, stacked: pd.DataFrame, top: float) -> alt.Chart:
    """Returns the strokes over bars of no known cause."""
    boxes = [
        (
            canvas.axis.pixel(bar.left),
            canvas.axis.pixel(bar.right),
            PREEMPTIONS_HEIGHT * (1 - bar.y2 / top),
            PREEMPTIONS_HEIGHT * (1 - bar.y / top),
        )
        for bar in stacked[stacked["series"] == UNATTRIBUTED].itertuples(index=False)
    ]
    return hatching(boxes, colours.BACKGROUND.of(canvas.theme))


def _cause_colour(cause: str, theme: colours.Theme) -> str:
    if cause == UNATTRIBUTED:
        return colours.UNATTRIBUTED.of(theme)
    return colours.of_reason(PreemptionCause, cause, theme)


_PARTS = {
    "useful": ("useful", colours.USEFUL),
    "recomputed": ("recomputed", colours.LOST),
    "rejected": ("rejected drafts", colours.REJECTED_DRAFTS),
    "padding": ("padding drafts", colours.PADDING),
}


def tokens(canvas: Canvas, bars: pd.DataFrame, *, has_drafts: bool, bin_ns: int) -> alt.LayerChart:
    """Returns scheduled tokens per bin by what they were good for.

    Args:
        canvas: what all panels share.
        bars: `x`, `useful`, `recomputed`, `rejected`, `padding`; missing where not recorded.
        has_drafts: whether the engine speculates.
        bin_ns: length of a bin.
    """
    theme = canvas.theme
    long = bars.melt(id_vars="x", value_vars=list(_PARTS), var_name="series", value_name="n")
    long = long[long["n"].notna() & (long["n"] > 0)]
    stacked = _stacked(long, tuple(_PARTS), bin_ns)
    tints = {part: colour.of(theme) for part, (_, colour) in _PARTS.items()}
    layer = _bars(canvas, stacked, tints, top=_top(stacked), last=True)
    total = int(long["n"].sum())
    return canvas.panel(
        [layer],
        title=f"Token work, tokens per {length_words(bin_ns)}",
        fact=f"{total:,} scheduled",
        labels=_token_labels(bars, theme, total, has_drafts),
        height=TOKENS_HEIGHT,
        last=True,
    )


def _token_labels(
    bars: pd.DataFrame, theme: colours.Theme, total: int, has_drafts: bool
) -> list[Label]:
    labels: list[Label] = []
    for part in ("recomputed", "useful"):
        name, colour = _PARTS[part]
        count = int(bars[part].sum())
        share = f"{100 * count / total:.1f} %" if total else ""
        tint = colours.text_colour(colour.of(theme), theme) if count else colours.MUTED.of(theme)
        labels.append(
            Label(f"{name} {count:,} {share}", tint, bold=count > 0, y=14 + 22 * len(labels))
        )
    if not has_drafts:
        return [*labels, Label("rejected drafts: no speculation", colours.MUTED.of(theme), y=58)]
    for part in ("rejected", "padding"):
        name, colour = _PARTS[part]
        tint = colours.text_colour(colour.of(theme), theme)
        labels.append(Label(f"{name} {int(bars[part].sum()):,}", tint))
    return labels


def _stacked(bars: pd.DataFrame, order: tuple[str, ...], bin_ns: int) -> pd.DataFrame:
    """Returns bars with both ends on both axes, stacked in `order`."""
    frame = bars.copy()
    frame["n"] = frame["n"].astype(float)
    frame["place"] = frame["series"].map({name: i for i, name in enumerate(order)})
    frame = frame.sort_values(["x", "place"], kind="stable")
    frame["y2"] = frame.groupby("x")["n"].cumsum()
    frame["y"] = frame["y2"] - frame["n"]
    width = bin_ns / 1e6
    frame["left"] = frame["x"] + 0.06 * width
    frame["right"] = frame["x"] + 0.94 * width
    return frame[["x", "left", "right", "series", "n", "y", "y2"]]


def _top(stacked: pd.DataFrame) -> float:
    """Returns where the y axis ends: at the highest bar, or at the tick above it."""
    highest = float(stacked["y2"].max()) if not stacked.empty else 0.0
    return max(highest, 1.0)


def _bars(
    canvas: Canvas,
    stacked: pd.DataFrame,
    tints: dict[str, str],
    *,
    top: float,
    last: bool = False,
) -> alt.Chart:
    scale = alt.Scale(domain=[0, top], nice=False)
    frame = stacked.assign(colour=stacked["series"].map(tints))
    return (
        alt.Chart(frame)
        .mark_rect(clip=True)
        .encode(
            x=canvas.axis.x("left", labels=last),
            x2=alt.X2("right:Q"),
            y=alt.Y(
                "y:Q",
                scale=scale,
                axis=y_axis(canvas.theme, values=tick_values(top), expr=_THOUSANDS),
            ),
            y2=alt.Y2("y2:Q"),
            color=alt.Color("colour:N", scale=None),
        )
    )


_THOUSANDS = "format(datum.value, ',')"

"""What all panels of one chart share, and how a panel is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import TimeAxis
from dashboard.charts.marks import (
    Label,
    Word,
    close_runs,
    cursor_layers,
    gap_layers,
    panel_words,
    word_layer,
)
from dashboard.colours import Theme


def cursor_view(title: str) -> str:
    """Returns the view name of the points that the cursor finds in a panel."""
    return "cursor_" + "".join(c if c.isalnum() else "_" for c in title.split(",")[0].lower())


NO_GAPS = pd.DataFrame({"x": [], "x2": [], "num_missing": []})
NO_STOPS = pd.DataFrame({"x": [], "step": [], "readout": []})
"""Nowhere for a cursor to stop: a still picture."""


@dataclass(frozen=True)
class Canvas:
    """The axis, the moments that the cursor stops at, the gaps, and where the record ends.

    Attributes:
        stops: `x`, `step` and `readout`, a row a moment.
        gaps: `x`, `x2`, `num_missing`, a row a stretch without a record.
        end: ms since the window's start up to which the newest state holds.
        events: `x`, `kind`, a row an event of the engine.
    """

    axis: TimeAxis
    stops: pd.DataFrame
    gaps: pd.DataFrame
    end: float
    events: pd.DataFrame | None = None

    @property
    def theme(self) -> Theme:
        """The theme of all panels."""
        return self.axis.theme

    def closed(self, runs: pd.DataFrame, values: list[str]) -> pd.DataFrame:
        """Returns runs of states that end where the record does."""
        return close_runs(runs, self.end, self.gaps, values)

    def panel(
        self,
        layers: Sequence[alt.Chart],
        *,
        title: str,
        fact: str,
        labels: Sequence[Label],
        height: int,
        last: bool = False,
        more: Sequence[Word] = (),
        under: Sequence[alt.Chart] = (),
        names_gaps: bool = True,
    ) -> alt.LayerChart:
        """Returns a panel: what lies under it, gaps, its layers, events, cursor and words."""
        axis = self.axis
        x = axis.x(labels=last)
        words = [*panel_words(axis, title, fact, labels, height=height), *more]
        words += self._gap_words(height) if names_gaps else []
        parts = [
            *under,
            *gap_layers(axis, self.gaps, x, height=height),
            *layers,
            *self._event_layers(x),
            *cursor_layers(axis, self.stops, x, name=cursor_view(title)),
            word_layer(words),
        ]
        return alt.layer(*parts).properties(width=axis.width, height=height)

    def _gap_words(self, height: int) -> list[Word]:
        if height < 40:
            return []
        words = []
        for gap in self.gaps.itertuples(index=False):
            left, right = self.axis.pixel(gap.x), self.axis.pixel(gap.x2)
            if right - left < 80:
                continue
            middle, text = (left + right) / 2, colours.TEXT.of(self.theme)
            has_room = height > 90 and right - left > 120
            y = height / 2 - (8 if has_room else 0)
            words.append(Word(middle, y, "not recorded", text, bold=True, align="center"))
            if has_room:
                said = f"{int(gap.num_missing):,} steps dropped"
                words.append(Word(middle, y + 16, said, text, align="center"))
        return words

    def event_words(self) -> list[Word]:
        """Returns a word at the top of each event's rule; the panels below have the rule alone."""
        if self.events is None:
            return []
        return [self._event_word(event) for event in self.events.itertuples(index=False)]

    def _event_word(self, event: Any) -> Word:
        x = self.axis.pixel(event.x)
        at_edge = x > self.axis.width - 110
        return Word(
            x - 4 if at_edge else x + 4,
            6,
            str(event.kind).replace("_", " "),
            colours.MUTED.of(self.theme),
            align="right" if at_edge else "left",
            size=10,
        )

    def ends(self, runs: pd.DataFrame) -> pd.Series:
        """Returns where each run (`x`, `x2`) ends: at the next, at a gap, or with the record."""
        ends = runs["x2"].astype(float).fillna(self.end).clip(upper=self.end)
        for gap in self.gaps.itertuples(index=False):
            inside = (runs["x"] <= gap.x) & (ends > gap.x)
            ends = ends.mask(inside, gap.x)
        return ends

    def _event_layers(self, x: alt.X) -> list[alt.Chart]:
        if self.events is None or self.events.empty:
            return []
        return [
            alt.Chart(self.events)
            .mark_rule(color=colours.MUTED.of(self.theme), strokeDash=[1, 2])
            .encode(x=x)
        ]

    def silence(self, title: str, missing: str, *, height: int, last: bool = False) -> alt.Chart:
        """Returns a panel that says what is missing; its place stays, and there is no zero line."""
        theme = self.theme
        words = [
            Word(0, -9, title, colours.TEXT.of(theme), bold=True, size=13),
            Word(
                self.axis.width / 2,
                height / 2,
                f"– not measured: {missing}",
                colours.MUTED.of(theme),
                align="center",
            ),
        ]
        ground = (
            alt.Chart(pd.DataFrame([{"x": 0.0, "x2": self.axis.length_ms}]))
            .mark_rect(color=colours.PANEL.of(theme))
            .encode(
                x=self.axis.x(labels=last),
                x2=alt.X2("x2:Q"),
                y=alt.YValue(0),
                y2=alt.Y2Value(height),
            )
        )
        return alt.layer(ground, word_layer(words)).properties(width=self.axis.width, height=height)

"""Pages of metrics, line by line: text format and OpenMetrics, with times and without.

A series repeats on every page, letter by letter, so a line costs a look-up; only the first time its
labels are read, by `prometheus_client`. A line that cannot be read costs that line alone: it is
counted and shown. `prometheus_client`'s reader of whole pages is not used, as it gives up at the
first such line and renames counters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from telemetry.sources.prometheus.series import MOST_SERIES, Series, series_of

LONGEST_LINE = 16_384
"""Characters. The longest of a real page has 1,300: the settings of the cache."""
MOST_NAMES = 200

_LINE = re.compile(
    r"""
    ( (?: [a-zA-Z_:][a-zA-Z0-9_:]* )?                           # name
      (?: [ \t]* \{ (?: [^"}] | "(?:[^"\\]|\\.)*" )* \} )?      # labels
    )
    [ \t]* (?<=[ \t}]) (\S+)                                    # value
    (?: [ \t]+ (-?[0-9][0-9.eE+-]*) )?                          # time
    (?: [ \t]+ \#.* )? \s*                                      # exemplar
    """,
    re.VERBOSE,
)
"""Each part ends where the next begins, so there is one way to read a line, and a bad one is given
up in a time that grows with its length. No possessive quantifiers: Python 3.11.2 has them wrong."""

Sample: TypeAlias = tuple[Series, float, float | None]
"""A series, its value, and its time in seconds where the line has one."""


@dataclass(slots=True)
class PageReader:
    """Reads lines of pages, and counts what it leaves out and what it cannot read."""

    num_unread: int = 0
    """Lines that are no samples."""
    unread: list[str] = field(default_factory=list)
    """Those of them that nobody has taken note of yet, at most ten."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Series that are not kept, by metric; of the first `MOST_NAMES` metrics."""
    _known: dict[str, Series | None] = field(default_factory=dict)

    def read(self, lines: Iterable[str]) -> Iterator[Sample]:
        """Yields the samples that are kept, in order."""
        known = self._known
        for line in lines:
            if line.startswith("#"):
                continue
            match = _LINE.fullmatch(line) if len(line) <= LONGEST_LINE else None
            try:
                if match is None:
                    raise ValueError
                head, value, time = match.groups()
                number = float(value)
                series = known[head] if head in known else self._first_time(head)
            except ValueError:
                self._not_read(line)
                continue
            if series is not None:
                yield series, number, None if time is None else float(time)

    def _first_time(self, head: str) -> Series | None:
        """Returns the series that the beginning of a line names.

        Raises:
            ValueError: It names none.
        """
        metric, labels = parse_series(head)
        series = series_of(metric, labels)
        if series is None and (metric in self.left_out or len(self.left_out) < MOST_NAMES):
            self.left_out[metric] += 1
        if len(self._known) >= MOST_SERIES:
            self._known.clear()
        self._known[head] = series
        return series

    def _not_read(self, line: str) -> None:
        if line.strip():
            self.num_unread += 1
            if len(self.unread) < 10:
                self.unread.append(line[:200].strip())

    def take_unread(self) -> list[str]:
        """Returns examples of lines that were not read since the last call."""
        taken, self.unread = self.unread, []
        return taken


def parse_series(head: str) -> tuple[str, dict[str, str]]:
    """Returns the name and the labels that the beginning of a line holds.

    Raises:
        ValueError: They are not written as either format demands.
    """
    for family in text_string_to_metric_families(f"{head} 0\n"):
        for sample in family.samples:
            return sample.name, sample.labels
    raise ValueError(f"no series: {head}")


def whole_lines(text: str) -> tuple[list[str], str | None]:
    """Returns the lines of a page, and the metric in which it was cut off, if it was.

    A page ends with the end of a line. Where one does not, its last family is left out: a counter
    of which some labels are missing would look as if it had fallen.
    """
    lines = text.split("\n")
    last = lines.pop().strip()
    if not last or last == "# EOF":
        return lines, None
    if not last.startswith("#"):
        metric = _name_of(last)
        has_families = any(line.startswith("# TYPE") for line in lines)
        while lines and not (
            lines[-1].startswith("#") if has_families else _name_of(lines[-1]) != metric
        ):
            lines.pop()
    return lines, _name_of(last.removeprefix("# TYPE ").removeprefix("# HELP "))


def _name_of(line: str) -> str:
    return re.split(r"[{\s]", line, maxsplit=1)[0]

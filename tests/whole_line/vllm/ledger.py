"""What preemptions cost, worked out from the step outputs that the witness heard.

One sentence: a request's tokens are lost when it is preempted, found again where its next step says
that they are computed already, and recomputed where a step computes a position that it had reached
before. It needs nothing that the engine or its record says of preemptions but their names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class RequestLedger:
    """The books of one request, in tokens."""

    reached: int = 0
    """Computed once the last step that it was in has run."""
    high_water: int = 0
    """The most that it ever had before a preemption."""
    num_preemptions: int = 0
    num_lost: int = 0
    num_recomputed: int = 0
    num_regained: int = 0

    def preempt(self) -> None:
        self.num_preemptions += 1
        self.num_lost += self.reached
        self.high_water = max(self.high_water, self.reached)
        self.reached = 0

    def run(self, computed: int, scheduled: int, *, resumed: bool) -> None:
        if resumed:
            self.num_regained += min(computed, self.high_water)
        below = min(computed + scheduled, self.high_water) - min(computed, self.high_water)
        self.num_recomputed += below
        self.reached = computed + scheduled


def read_ledgers(lines: Iterable[str]) -> dict[str, RequestLedger]:
    """Returns each request's books, by the id that the scheduler gave it."""
    books: dict[str, RequestLedger] = {}
    for line in lines:
        output: dict[str, Any] = json.loads(line)
        for name in output["preempted"]:
            books[name].preempt()
        for name, scheduled in output["scheduled"].items():
            book = books.setdefault(name, RequestLedger())
            book.run(output["computed"][name], scheduled, resumed=name in output["resumed"])
    return books


def witness_lines(folder: Path) -> list[str]:
    """Returns all lines of the one engine core that wrote into `folder`.

    Raises:
        LookupError: there is not exactly one.
    """
    files = sorted(folder.glob("*.jsonl"))
    if len(files) != 1:
        raise LookupError(f"{folder} has {len(files)} witness files: one engine core writes one")
    return files[0].read_text().splitlines()

"""One way to run an engine, labelled by what was done to it, never by what its log says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from diagnose.reading import QueryLog

Source = Literal["scripted", "engine", "vllm", "scrapes"]
"""What runs: the whole engine with a scripted runner, a served engine, a vLLM, or only scrapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run to be made. `load` scales how much traffic it gets; 1 is the scenario's usual."""

    seed: int
    load: float
    folder: Path
    """Empty; for a log on disk, where the run needs one."""

    @property
    def random(self) -> Random:
        """Returns the run's own source of chance: the same for the same seed and load."""
        return Random(f"{self.seed}/{self.load}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fault, a look-alike or a healthy run.

    `expected` is the rule that must come first; `None` where nothing above info may be found.
    `silent` are rules that must not fire: those it could be taken for. `shown` are guards, and
    rules that only inform, which must be seen at work.
    """

    name: str
    source: Source
    expected: str | None
    provoke: Callable[[Attempt], QueryLog]
    silent: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def provokes(self) -> bool:
        """Whether a rule or a guard has to be seen."""
        return self.expected is not None or bool(self.shown)

"""Faults on demand, for drills: a stage of a transfer is late, hangs, is lost or fails.

    --inject STAGE=KIND[:ARGS]      lookup=delay:0.5   load=fail_half:p=0.2,n=3   ack=lose

Stages are `lookup`, `load`, `save` and `ack`; arguments are the seconds of a delay, `p` (how often,
1 is always), `n` (how many times at most) and `seed` (of the draws). Nothing is faked in the
record: a fault changes what really happens, and the engine notes what it sees of that.

`stall` hangs until nobody waits any more, `lose` does its work and is never heard of again, `fail`
says so, `fail_half` (of a load) brings the first half and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, cast, get_args

from engine.config import ConfigError

Stage = Literal["lookup", "load", "save", "ack"]
End = Literal["stall", "lose", "fail", "fail_half"]
Kind = Literal["delay", "stall", "lose", "fail", "fail_half"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one stage. `count` is how many times at most; None is any number."""

    stage: Stage
    kind: Kind
    delay_seconds: float = 0.0
    probability: float = 1.0
    count: int | None = None
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Returns the fault that `--inject` names.

        Raises:
            ConfigError: it is none; the message says what is wrong and what there is.
        """
        stage, equals, rest = text.partition("=")
        kind, _, arguments = rest.partition(":")
        if not equals or stage not in get_args(Stage) or kind not in get_args(Kind):
            raise ConfigError(
                f"--inject {text}: it is STAGE=KIND[:ARGS], with a stage of "
                f"{', '.join(get_args(Stage))} and a kind of {', '.join(get_args(Kind))}"
            )
        if kind == "fail_half" and stage != "load":
            raise ConfigError(f"--inject {text}: only a load fails half-way; use {stage}=fail")
        numbers = _numbers(text, kind, [each for each in arguments.split(",") if each])
        return cls(
            stage=cast("Stage", stage),
            kind=cast("Kind", kind),
            delay_seconds=numbers.get("seconds", 0.0),
            probability=numbers.get("p", 1.0),
            count=int(numbers["n"]) if "n" in numbers else None,
            seed=int(numbers.get("seed", 0)),
        )


def _numbers(text: str, kind: str, arguments: Sequence[str]) -> dict[str, float]:
    """Returns a fault's arguments by name.

    Raises:
        ConfigError: one is unknown or no number, is out of range, or the seconds lack.
    """
    numbers: dict[str, float] = {}
    known = ("seconds", "p", "n", "seed") if kind == "delay" else ("p", "n", "seed")
    for argument in arguments:
        name, equals, value = argument.rpartition("=")
        name = name if equals else "seconds"
        try:
            numbers[name] = float(value) if name in ("seconds", "p") else float(int(value))
        except ValueError:
            raise ConfigError(f"--inject {text}: {value!r} is no number") from None
        if name not in known:
            raise ConfigError(f"--inject {text}: {argument!r} is not one of {', '.join(known)}")
    if kind == "delay" and not 0.0 < numbers.get("seconds", 0.0) < float("inf"):
        raise ConfigError(f"--inject {text}: a delay needs its seconds, above 0: delay:2.5")
    if not 0.0 <= numbers.get("p", 1.0) <= 1.0 or numbers.get("n", 1) < 1:
        raise ConfigError(f"--inject {text}: p lies between 0 and 1, and n is 1 or more")
    return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one pass through a stage: how late it is, and how it ends if not well."""

    delay_seconds: float = 0.0
    end: End | None = None

    @property
    def is_never_told(self) -> bool:
        """Whether nobody ever hears of its end."""
        return self.end in ("stall", "lose")


class FaultPlan:
    """Draws the fate of each pass through a stage. One thread asks, so that draws can be repeated.

    Where several faults name a stage their delays add up, and the first other one that is drawn
    decides.
    """

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = [(fault, Random(fault.seed)) for fault in faults]
        self._num_left = [fault.count for fault in faults]

    def draw(self, stage: Stage) -> Fate:
        """Returns the fate of the next pass through a stage."""
        delay, end = 0.0, None
        for index, (fault, random) in enumerate(self._faults):
            if fault.stage != stage or (end is not None and fault.kind != "delay"):
                continue
            if self._num_left[index] == 0 or random.random() >= fault.probability:
                continue
            if (left := self._num_left[index]) is not None:
                self._num_left[index] = left - 1
            delay += fault.delay_seconds
            end = end if fault.kind == "delay" else fault.kind
        return Fate(delay_seconds=delay, end=end)

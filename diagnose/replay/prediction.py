"""What a change would do, and how far that can be believed.

Two things are kept apart. The *back-test* replays the load under the recorded settings and compares
that with the record: its error is how wrong a replay of this load is. The *prediction* compares the
replay under other settings with the replay under the recorded ones, never with the record, so that
what both get wrong in the same way falls out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from diagnose.replay.measures import QUANTITIES, Measures, Quantity
from diagnose.replay.outcome import Outcome
from diagnose.replay.settable import SETTINGS, Changes, changed, value_now
from diagnose.replay.simulation import simulate
from diagnose.replay.step_times import DECODES, PREFILL_TOKENS
from diagnose.replay.workload import Clients, Workload

NUM_REPLAYS = 9
FINE, DIRECTION = 0.10, 0.25
"""Errors of a back-test up to which a number is given, and up to which a direction is."""
FEW = {"num_preemptions": 10.0, "num_tokens_lost": 1000.0, "num_tokens_recomputed": 1000.0}
"""Counts are compared as if the recorded one were at least so large: 1 for 2 is no error."""
NOTABLE = 0.05
"""A change below it is called none."""
TOO_DEAR = 0.05
"""A loss of output rate, or longer answers, by which a change is not worth its gain."""
BEYOND = 1.25
"""Steps that are so much larger than the largest recorded one are told of."""


class Trust(Enum):
    """What a back-test lets be said of a quantity."""

    FINE = "fine"
    DIRECTION = "direction only"
    WITHHELD = "withheld"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One quantity under the recorded settings and under the changed ones.

    `recorded` is the record's; `replayed` and `predicted` are of the replays whose steps took what
    steps took at the time (seed 0), `low` to `high` what all replays ranged over. `error` is the
    back-test's, of the recorded value, with its sign.
    """

    quantity: Quantity
    recorded: float | None
    replayed: float | None
    error: float | None
    trust: Trust
    predicted: float | None
    low: float | None
    high: float | None
    replayed_low: float | None
    replayed_high: float | None

    @property
    def change(self) -> float | None:
        """The change as a share of what is replayed under the recorded settings."""
        if self.predicted is None or self.replayed is None:
            return None
        if self.replayed == 0:
            return 0.0 if self.predicted == 0 else None
        return self.predicted / self.replayed - 1.0

    @property
    def is_told(self) -> bool:
        """Whether the back-test lets it be said."""
        return self.trust in (Trust.FINE, Trust.DIRECTION)

    @property
    def is_clear(self) -> bool:
        """Whether it changes by more than replays of the same settings differ."""
        if self.low is None or self.high is None or self.predicted == self.replayed:
            return False
        assert self.replayed_low is not None
        assert self.replayed_high is not None
        is_apart = self.high < self.replayed_low or self.low > self.replayed_high
        return is_apart and (self.change is None or abs(self.change) >= NOTABLE)

    @property
    def is_worse(self) -> bool:
        """Whether the change is clear and not what anybody wants."""
        if not self.is_clear or self.predicted is None or self.replayed is None:
            return False
        return (self.predicted > self.replayed) is self.quantity.less_is_better


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One change: what is changed, from what to what."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What changes would do. `by_cause` are preemptions in the first replay, before and after."""

    changes: tuple[Changed, ...]
    quantities: tuple[Predicted, ...]
    num_requests: int
    num_replays: int
    clients: Clients
    step_error: float
    by_cause: tuple[tuple[str, int, int], ...]
    notes: tuple[str, ...] = ()

    def of(self, name: str) -> Predicted:
        """Returns a quantity by its name."""
        return next(each for each in self.quantities if each.quantity.name == name)

    @property
    def costs_more_than_it_gains(self) -> bool:
        """Whether output rate or whole answers get worse by so much that the gain is no aim."""
        rate, e2e = self.of("output_tokens_per_second"), self.of("e2e_mean")
        dear_rate = rate.is_worse and rate.change is not None and rate.change < -TOO_DEAR
        dear_e2e = e2e.is_worse and e2e.change is not None and e2e.change > TOO_DEAR
        return dear_rate or dear_e2e


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """Several replays of one load, with the same seeds as any other's."""

    outcomes: tuple[Outcome, ...]

    @classmethod
    def of(cls, workload: Workload, number: int, max_steps: int | None = None) -> Replays:
        """Replays a load under so many seeds."""
        return cls(
            outcomes=tuple(
                simulate(workload, seed=seed, max_steps=max_steps) for seed in range(number)
            )
        )

    @property
    def measures(self) -> list[Measures]:
        """The quantities of each replay."""
        return [outcome.measures for outcome in self.outcomes]

    @property
    def first(self) -> Measures:
        """The quantities of the replay with seed 0."""
        return self.outcomes[0].measures


def predict(
    workload: Workload,
    changes: Changes,
    *,
    num_replays: int = NUM_REPLAYS,
    before: Replays | None = None,
) -> Prediction:
    """Returns what changes would do to a load.

    Args:
        before: replays of the load as it is, where there are some already.

    Raises:
        ChangeError: a change is unknown, or says nothing in this load.
        ConfigError: a value is not possible.
    """
    other = changed(workload, changes)
    before = before or Replays.of(workload, num_replays)
    after = Replays.of(other, num_replays)
    causes_before = dict(before.first.by_cause)
    causes_after = dict(after.first.by_cause)
    return Prediction(
        changes=tuple(_changed_values(workload, other, changes)),
        quantities=tuple(_predicted(quantity, workload, before, after) for quantity in QUANTITIES),
        num_requests=other.num_requests,
        num_replays=len(after.outcomes),
        clients=other.clients,
        step_error=workload.step_times.error_ratio,
        by_cause=tuple(
            (cause, causes_before.get(cause, 0), causes_after.get(cause, 0))
            for cause in sorted(causes_before | causes_after)
        ),
        notes=(*workload.notes, *_warnings(workload, after)),
    )


def error_of(quantity: Quantity, workload: Workload, replayed: float | None) -> float | None:
    """Returns the back-test's error of a quantity, with its sign; None where it is not known.

    A time is compared as if the recorded one were a step long at least.
    """
    recorded = workload.recorded.value(quantity.name)
    if recorded is None or replayed is None:
        return None
    least = FEW.get(quantity.name, 0.0)
    if quantity.unit == "s":
        least = workload.step_times.mean_ns / 1e9
    return (replayed - recorded) / max(recorded, least, 1e-12)


def trust_in(error: float | None) -> Trust:
    """Returns what an error lets be said."""
    if error is None:
        return Trust.NOT_MEASURED
    if abs(error) <= FINE:
        return Trust.FINE
    return Trust.DIRECTION if abs(error) <= DIRECTION else Trust.WITHHELD


def _predicted(
    quantity: Quantity, workload: Workload, before: Replays, after: Replays
) -> Predicted:
    replayed = before.first.value(quantity.name)
    error = error_of(quantity, workload, replayed)
    trust = trust_in(error)
    old, new = _known(quantity.name, before), _known(quantity.name, after)
    is_told = trust in (Trust.FINE, Trust.DIRECTION)
    return Predicted(
        quantity=quantity,
        recorded=workload.recorded.value(quantity.name),
        replayed=replayed,
        error=error,
        trust=trust,
        predicted=after.first.value(quantity.name) if is_told else None,
        low=min(new, default=None) if is_told else None,
        high=max(new, default=None) if is_told else None,
        replayed_low=min(old, default=None),
        replayed_high=max(old, default=None),
    )


def _known(name: str, replays: Replays) -> list[float]:
    return [value for one in replays.measures if (value := one.value(name)) is not None]


def _changed_values(workload: Workload, other: Workload, changes: Changes) -> list[Changed]:
    found = []
    for name, value in changes.items():
        if name == "without":
            found.append(
                Changed(
                    name=f"without {', '.join(value)}",
                    before=workload.num_requests,
                    after=other.num_requests,
                )
            )
        else:
            found.append(Changed(name=name, before=value_now(workload, name), after=value))
    return found


def _warnings(workload: Workload, after: Replays) -> list[str]:
    """Returns what has to be known of a replay under other settings."""
    told = []
    stuck = [outcome for outcome in after.outcomes if outcome.is_stuck]
    if stuck:
        told.append(
            f"{stuck[0].num_unfinished:,} requests never end under these settings: nothing is left "
            "that could let them in"
        )
    for index, what in ((DECODES, "decoding requests"), (PREFILL_TOKENS, "prefill tokens")):
        reached = max(outcome.largest[index] for outcome in after.outcomes)
        recorded = workload.step_times.largest[index]
        if reached > BEYOND * max(recorded, 1.0):
            told.append(
                f"steps would have up to {reached:,.0f} {what} and had {recorded:,.0f} at most: "
                "how long such steps take is extrapolated"
            )
    return told


def needs_of(workload: Workload, name: str, value: Any) -> str:
    """Returns what a change takes in production: a restart, and how much memory."""
    needs = SETTINGS[name].needs
    if name != "num_gpu_blocks":
        return needs
    ratio = (value - 1) / workload.config.cache.num_usable_blocks
    return f"{needs}, {ratio:.2g} x KV memory"

"""What a run is judged by, the same for a recorded one and for a replay of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
"""Seconds, a value a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number that is compared: its name, its unit, and whether less of it is better."""

    name: str
    label: str
    unit: str
    less_is_better: bool = True


QUANTITIES = (
    Quantity(name="num_preemptions", label="preemptions", unit=""),
    Quantity(name="num_tokens_lost", label="tokens lost", unit="tokens"),
    Quantity(name="num_tokens_recomputed", label="tokens recomputed", unit="tokens"),
    Quantity(name="queue_p50", label="queue time p50", unit="s"),
    Quantity(name="queue_p95", label="queue time p95", unit="s"),
    Quantity(name="ttft_p50", label="first token p50", unit="s"),
    Quantity(name="ttft_p95", label="first token p95", unit="s"),
    Quantity(name="itl_p50", label="token interval p50", unit="s"),
    Quantity(name="itl_p95", label="token interval p95", unit="s"),
    Quantity(name="longest_pause_p50", label="longest pause p50", unit="s"),
    Quantity(name="longest_pause_p95", label="longest pause p95", unit="s"),
    Quantity(name="e2e_mean", label="whole answer, mean", unit="s"),
    Quantity(
        name="output_tokens_per_second",
        label="output tokens/s",
        unit="tokens/s",
        less_is_better=False,
    ),
)
"""In the order in which they are printed. A token interval is a request's mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The quantities of one run; None was not measured.

    `by_cause` splits the preemptions (kv_full, priority, cache_reset).
    """

    num_preemptions: float | None = None
    num_tokens_lost: float | None = None
    num_tokens_recomputed: float | None = None
    queue_p50: float | None = None
    queue_p95: float | None = None
    ttft_p50: float | None = None
    ttft_p95: float | None = None
    itl_p50: float | None = None
    itl_p95: float | None = None
    longest_pause_p50: float | None = None
    longest_pause_p95: float | None = None
    e2e_mean: float | None = None
    output_tokens_per_second: float | None = None
    by_cause: tuple[tuple[str, int], ...] = ()

    def value(self, name: str) -> float | None:
        """Returns a quantity by its name."""
        found: float | None = getattr(self, name)
        return found


def percentile(values: Times | Sequence[float], share: float) -> float | None:
    """Returns the value that `share` of all are not above; None where there are none."""
    return float(np.quantile(values, share)) if len(values) else None

"""How a change is taken out of a recorded load, so that a replay shows what it did.

A value that knows no replay: which requests would not have come, and which sizes, priorities and
settings it would have been instead. Several at once are one, in whatever order they are joined:
a request's prompt, beginning, output and priority are different things, and settings have names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """What would have been otherwise. Requests go by their number."""

    dropped: frozenset[int] = frozenset()
    num_prompt_tokens: Mapping[int, int] = field(default_factory=dict)
    num_output_tokens: Mapping[int, int] = field(default_factory=dict)
    priority: Mapping[int, int] = field(default_factory=dict)
    prefixes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Request -> which earlier one its prompt would have begun like, and for how many tokens."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    load_ns: int | None = None
    """Every KV load would have taken so long, and none would have failed."""
    without_resets: bool = False


def together(undos: Iterable[Undo]) -> Undo:
    """Returns several changes taken out at once."""
    all_of = list(undos)
    loads = [each.load_ns for each in all_of if each.load_ns is not None]
    return Undo(
        dropped=frozenset().union(*(each.dropped for each in all_of)),
        num_prompt_tokens=_merged(each.num_prompt_tokens for each in all_of),
        num_output_tokens=_merged(each.num_output_tokens for each in all_of),
        priority=_merged(each.priority for each in all_of),
        prefixes=_merged(each.prefixes for each in all_of),
        settings=_merged(each.settings for each in all_of),
        load_ns=min(loads, default=None),
        without_resets=any(each.without_resets for each in all_of),
    )


def _merged(parts: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    return {key: value for part in parts for key, value in part.items()}


def as_before(before: Ints, after: Ints) -> Ints:
    """Returns for each size after a change the one of the same rank before it.

    The smallest stays the smallest and the largest the largest: quantile by quantile.
    """
    order = np.argsort(np.argsort(after, kind="stable"), kind="stable")
    return np.asarray(np.quantile(before, (order + 0.5) / len(after), method="nearest"))


def thinned(requests: Ints, num_kept: int) -> frozenset[int]:
    """Returns which of some arrivals would not have come, evenly among them, if `num_kept` had."""
    n = len(requests)
    num_kept = min(max(num_kept, 0), n)
    ranks = np.arange(n)
    kept = (ranks + 1) * num_kept // n > ranks * num_kept // n if n else ranks > 0
    return frozenset(requests[~kept].tolist())

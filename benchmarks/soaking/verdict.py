"""What a soak has shown: is everything level, and did every request end exactly once?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import httpx

from benchmarks.soaking.callers import Outcome
from benchmarks.soaking.gauges import Sample
from telemetry.store import Log
from telemetry.vocabulary import FinishReason

MEMORY_SHARE = 0.02
MEMORY_MIB = 4.0
"""Memory is level where the last third's median is above the middle third's by no more than a share
of it, or by no more than so many MiB."""

REASONS = {"stop": "stop", "length": "length", "abort": "abort_api"}
"""Ends as callers are told of them, and as they are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One measured value over the thirds of a soak."""

    name: str
    first: float
    middle: float
    last: float
    is_level: bool


def levels(samples: Sequence[Sample]) -> list[Level]:
    """Returns each value's thirds.

    Memory: by its medians, see above. Handles and threads: the last third's most is no more than
    the middle third's most. Blocks in use: none at any idle moment.
    """
    size = len(samples) // 3
    thirds = (samples[:size], samples[size : 2 * size], samples[2 * size :])
    found = []
    for name in samples[0].values:
        each = [[sample.values[name] for sample in third] for third in thirds]
        if name.endswith("MiB"):
            first, middle, last = map(median, each)
            is_level = last - middle <= max(MEMORY_MIB, MEMORY_SHARE * middle)
        else:
            first, middle, last = map(max, each)
            is_level = last <= middle if name != "blocks in use" else not any(map(max, each))
        found.append(Level(name=name, first=first, middle=middle, last=last, is_level=is_level))
    return found


def complaints_about_ends(log: Log, outcomes: Sequence[Outcome]) -> list[str]:
    """Returns every disagreement between the log and the callers about how requests ended."""
    rows = log.query(
        """
        SELECT a.request_id AS id, list(f.reason) AS reasons
        FROM request_arrivals a LEFT JOIN request_finishes f USING (engine, request)
        GROUP BY a.engine, a.request, a.request_id
        """
    ).to_pylist()
    recorded = {
        row["id"]: [FinishReason(code).name for code in row["reasons"] if code is not None]
        for row in rows
    }
    complaints = [f"{len(rows) - len(recorded):,} ids arrived twice"] * (len(rows) > len(recorded))
    complaints += [
        f"{name} has {len(reasons)} ends in the log: {reasons}"
        for name, reasons in recorded.items()
        if len(reasons) != 1
    ]
    for outcome in outcomes:
        complaints += _complaints(outcome, recorded)
    known = {name for outcome in outcomes for name in outcome.engine_ids}
    return complaints + [f"{name} was recorded and never asked" for name in recorded.keys() - known]


def _is_well_refused(outcome: Outcome, seen: Counter[str]) -> bool:
    """Whether a malformed request was refused, and came no further than it may.

    That a grammar is none shows when it is compiled: the request is in the record with an error
    then, or with an abort where an operator ended everything before.
    """
    if outcome.status == httpx.codes.OK:
        return set(outcome.finish_reasons) == {"abort"} and set(seen) == {"abort_api"}
    is_refused = outcome.status is not None and 400 <= outcome.status < 500
    return is_refused and set(seen) <= {"refused", "error"}


def _complaints(outcome: Outcome, recorded: dict[str, list[str]]) -> list[str]:
    told = Counter(REASONS.get(reason, reason) for reason in outcome.finish_reasons)
    found = [recorded.get(name) for name in outcome.engine_ids]
    seen = Counter(reasons[0] for reasons in found if reasons)
    say = f"{outcome.request_id} ({outcome.feature}, {outcome.fate})"
    if outcome.fate == "malformed":
        return [] if _is_well_refused(outcome, seen) else [f"{say}: {outcome.status} {dict(seen)}"]
    if outcome.status is None and outcome.fate == "hang up":
        return []  # how far it came is anybody's guess; that it ended once has been seen
    if outcome.error or outcome.status != 200:
        return [f"{say}: HTTP {outcome.status} {outcome.error}"]
    if outcome.has_stop_strings:  # the text's end may be seen after the engine's own
        told, seen = (Counter({"any": c.total()}) for c in (told, seen))
    return [] if told == seen else [f"{say}: told {dict(told)}, recorded {dict(seen)}"]

"""How a deep check is told: the verdict, where the pool's blocks are, what else was compared."""

from __future__ import annotations

from collections.abc import Iterator

from telemetry.doctor.check import Check, Level, count_text
from telemetry.doctor.deep import DeepCheck

_ROWS = {
    "free, nothing in them": "num_free_unhashed_blocks",
    "free, cached": "num_free_cached_blocks",
    "held by running requests": "num_running_blocks",
    "held by waiting requests": "num_waiting_blocks",
    "kept after a request's end": "num_kept_blocks",
}
"""Where a block can be; each is in one place, so they sum up to the pool."""

REMEDY = (
    "restart this engine: from here on it may give a prompt the KV of another, or stand still. "
    "It is a fault of Stepscope's: keep the log, and report it with doctor --deep --format json"
)


def verdict_of(check: DeepCheck) -> Iterator[Check]:
    """Yields the verdict, and what to do about it."""
    reason = check.reason or ""
    match check.verdict:
        case "healthy":
            yield Check("good", "healthy", _when(check))
        case "broken":
            yield Check("bad", "broken", reason)
            yield Check("unknown", "what to do", REMEDY)
            yield Check("unknown", "looked at", _when(check))
        case "not_checked":
            yield Check("unknown", "not checked", reason)


def block_table(check: DeepCheck) -> list[str]:
    """Returns where the pool's blocks are, as lines of a table."""
    if check.counts is None:
        return []
    counts = {name: check.counts[key] for name, key in _ROWS.items()}
    total, usable = sum(counts.values()), check.counts["num_usable_blocks"]
    counts["sum"] = total
    width = max(len(count_text(count)) for count in counts.values())
    lines = [f"  {name:<28} {count_text(count):>{width}}" for name, count in counts.items()]
    lines[-1] += f"  {'=' if total == usable else '≠'} the pool's {count_text(usable)}"
    return ["  KV blocks", *lines]


def checks_of(check: DeepCheck) -> Iterator[Check]:
    """Yields what else was counted and compared."""
    counts = check.counts
    if counts is None:
        return
    references, entries = counts["num_references"], counts["num_table_entries"]
    sign = "=" if references == entries else "≠"
    yield Check(
        _level(references == entries),
        "references",
        f"{count_text(references)} {sign} {count_text(entries)} entries of block tables",
    )
    yield Check(
        _level(check.verdict == "healthy"),
        "cached blocks",
        f"{count_text(counts['num_cached_blocks'])}; the keys of "
        f"{count_text(counts['num_blocks_rehashed'])} that requests hold were worked out anew",
    )
    yield Check(
        _level(check.verdict == "healthy"),
        "requests",
        f"{count_text(counts['num_running'])} running, {count_text(counts['num_waiting'])} "
        f"waiting, {count_text(counts['num_kv_holding_waiting'])} waiting with blocks, "
        f"{count_text(counts['num_kept'])} ended with blocks kept",
    )


def _when(check: DeepCheck) -> str:
    stood_still = "–" if check.duration_ns is None else f"{check.duration_ns / 1e6:,.1f} ms"
    before = "" if check.counts is None else f"before step {count_text(check.counts['step'])}; "
    return f"{before}the engine stood still for {stood_still}"


def _level(is_good: bool) -> Level:
    return "good" if is_good else "unknown"

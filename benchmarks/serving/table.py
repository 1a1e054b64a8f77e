"""Outcomes as a table for people, and as rows for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.serving.comparison import Outcome, Ratio
from benchmarks.serving.measuring import Round, percentile_ms

GOAL = 1.0
"""Our output tokens a second over vLLM's, on the tiny Llama."""

HEAD = (
    "| concurrency | side | tokens/s | ours over it | CPU ms a token | TTFT p50 / p95 ms "
    "| ITL p50 / p95 ms | equal texts, tokens before the first difference |\n"
    "|---|---|---|---|---|---|---|---|"
)


def lines(outcome: Outcome) -> Iterator[str]:
    """Yields a row for each side, ours first."""
    ours = next(iter(outcome.rounds))
    for name, rounds in outcome.rounds.items():
        over = "" if name == ours else _told(outcome.throughput_ratio(ours, name))
        agreement = outcome.agreement[name]
        same = f"{agreement.equal_ratio:.0%}, {agreement.shared_ratio:.0%}"
        yield (
            f"| {outcome.load.concurrency} | {name} | {_median(rounds, 'tokens_per_second'):,.0f} "
            f"| {over} | {_median(rounds, 'cpu_ms_per_token'):.2f} "
            f"| {_percentiles(rounds, 'ttft_seconds')} | {_percentiles(rounds, 'itl_seconds')} "
            f"| {'' if name == ours else same} |"
        )


def json_row(outcome: Outcome) -> dict[str, Any]:
    """Returns an outcome as plain values."""
    ours = next(iter(outcome.rounds))
    return {
        "load": asdict(outcome.load),
        "sides": {
            name: {
                "num_rounds": len(rounds),
                "tokens_per_second": [each.tokens_per_second for each in rounds],
                "cpu_ms_per_token": [each.cpu_ms_per_token for each in rounds],
                **_percentile_fields(rounds, "ttft_seconds"),
                **_percentile_fields(rounds, "itl_seconds"),
                "agreement": asdict(outcome.agreement[name]),
                "throughput_ratio": asdict(outcome.throughput_ratio(ours, name)),
                "cpu_ratio": asdict(outcome.cpu_ratio(ours, name)),
            }
            for name, rounds in outcome.rounds.items()
        },
    }


def verdict(outcome: Outcome, peer: str) -> str:
    """Returns whether the goal is met, by the median and by its interval."""
    ours = next(iter(outcome.rounds))
    ratio = outcome.throughput_ratio(ours, peer)
    met = "met" if ratio.median >= GOAL else "MISSED"
    return (
        f"concurrency {outcome.load.concurrency}: {_told(ratio)} x {peer}'s tokens/s, CPU a token "
        f"{_told(outcome.cpu_ratio(ours, peer))} x; goal {GOAL:g}: {met}"
    )


def _told(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _median(rounds: Sequence[Round], what: str) -> float:
    return float(np.median([getattr(each, what) for each in rounds]))


def _all(rounds: Sequence[Round], what: str) -> list[float]:
    return [seconds for each in rounds for seconds in getattr(each, what)]


def _percentiles(rounds: Sequence[Round], what: str) -> str:
    values = _all(rounds, what)
    told = (percentile_ms(values, percent) for percent in (50, 95))
    return " / ".join("-" if ms is None else f"{ms:,.1f}" for ms in told)


def _percentile_fields(rounds: Sequence[Round], what: str) -> dict[str, float | None]:
    name = what.removesuffix("_seconds")
    values = _all(rounds, what)
    return {f"{name}_p{percent}_ms": percentile_ms(values, percent) for percent in (50, 95)}

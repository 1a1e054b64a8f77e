"""The witness's books, on step outputs written by hand."""

from __future__ import annotations

import json
from typing import Any

from tests.whole_line.vllm.ledger import RequestLedger, read_ledgers


def output(
    scheduled: dict[str, tuple[int, int]], resumed: str = "", preempted: str = ""
) -> dict[str, Any]:
    """Returns one output; `scheduled` is what each had computed and what it is given."""
    return {
        "scheduled": {name: given for name, (_, given) in scheduled.items()},
        "computed": {name: had for name, (had, _) in scheduled.items()},
        "resumed": list(resumed),
        "preempted": list(preempted),
        "finished": [],
    }


def books(*outputs: dict[str, Any]) -> RequestLedger:
    return read_ledgers(map(json.dumps, outputs))["a"]


def test_without_a_preemption_nothing_is_lost() -> None:
    seen = books(output({"a": (0, 64)}), output({"a": (64, 1)}))
    assert (seen.num_lost, seen.num_recomputed, seen.reached) == (0, 0, 65)


def test_lost_tokens_are_found_or_recomputed() -> None:
    seen = books(
        output({"a": (0, 100)}),
        output({}, preempted="a"),
        output({"a": (32, 40)}, resumed="a"),
        output({"a": (72, 40)}),
    )
    assert (seen.num_lost, seen.num_regained, seen.num_recomputed) == (100, 32, 68)


def test_what_was_lost_twice_is_recomputed_up_to_the_most_it_ever_had() -> None:
    seen = books(
        output({"a": (0, 100)}),
        output({}, preempted="a"),
        output({"a": (0, 60)}, resumed="a"),
        output({}, preempted="a"),
        output({"a": (0, 101)}, resumed="a"),
    )
    assert (seen.num_preemptions, seen.num_lost, seen.num_recomputed) == (2, 160, 160)

"""Times of tokens, against working out each gap of each request by itself."""

from __future__ import annotations

import random
from collections import defaultdict
from types import SimpleNamespace

import pytest

from telemetry.sources.vllm.lives import Life
from telemetry.sources.vllm.token_times import TokenTimes


def lives(*names: str) -> dict[str, Life]:
    return {
        name: Life(number, SimpleNamespace(request_id=name), 0) for number, name in enumerate(names)
    }


@pytest.mark.parametrize("seed", range(30))
def test_times_are_those_of_each_request_by_itself(seed: int) -> None:
    r = random.Random(seed)
    known = lives(*"abcde")
    times = TokenTimes(lambda life, ts: None)
    moments: dict[str, list[int]] = defaultdict(list)
    ts, members = 0, ["a"]
    for _ in range(60):
        ts += r.choice((1, 5, 5, 9, 30))
        if r.random() < 0.3:
            members = r.sample("abcde", r.randrange(6))
        if r.random() < 0.1:
            times.leave(r.choice("abcde"))
        times.took(list(members), known, ts)
        for name in members:
            moments[name].append(ts)
    for name, life in known.items():
        times.leave(name)
        gaps = [after - before for before, after in zip(moments[name], moments[name][1:])]  # noqa: B905
        assert life.last_token_ts == (moments[name][-1] if moments[name] else None)
        assert life.max_itl_ns == max(gaps, default=None)


def test_a_first_token_is_told_once() -> None:
    told: list[int] = []
    known = lives("a", "b")
    times = TokenTimes(lambda life, ts: told.append(life.number))
    for ts, names in enumerate((["a"], ["a", "b"], ["b"], ["a", "b"]), start=1):
        times.took(names, known, ts)
    assert told == [0, 1]


def test_the_first_token_after_a_resumption_is_told_though_none_was_missed() -> None:
    told: list[int] = []
    known = lives("a")
    times = TokenTimes(lambda life, ts: told.append(ts))
    times.took(["a"], known, 1)
    times.leave("a")
    known["a"].is_catching_up = True
    times.took(["a"], known, 2)
    assert told == [1, 2]

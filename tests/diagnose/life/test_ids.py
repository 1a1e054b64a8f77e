"""A finding keeps its id, whatever window it is looked at through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.diagnosis import Diagnosis, diagnose
from diagnose.finding import finding_id
from diagnose.life.look import look_at
from diagnose.life.machine import Change, Life, observe
from diagnose.reading import NS
from diagnose.window import choose_window
from tests.diagnose.logs import Arrival, config, log_of, run

LENGTH_NS = 8 * NS
SLIDE_NS = 2 * NS


@pytest.fixture(scope="module")
def looks() -> list[Diagnosis]:
    """Two engines in need of KV blocks and of slots, through windows that slide by 2 s."""
    arrivals = [Arrival(1) for _ in range(28)] + [Arrival(40 + 8 * i) for i in range(160)]
    storm, slots = (
        run(config(), arrivals),
        run(config(max_num_seqs=8, num_gpu_blocks=512), arrivals),
    )
    slots.engine = 2
    log = log_of(storm.builder(), slots.builder())
    whole = choose_window(log)
    ends = range(whole.start_ts + LENGTH_NS, whole.end_ts, SLIDE_NS)
    windows = [replace(whole, start_ts=end - LENGTH_NS, end_ts=end) for end in ends[:5]]
    return [diagnose(log, window, effort="none") for window in windows]


def test_a_window_that_slides_finds_the_same_ones(looks: list[Diagnosis]) -> None:
    ids: dict[tuple[str, int], set[str]] = {}
    opened: set[int] = set()
    for finding in (finding for look in looks for finding in look.findings):
        ids.setdefault((finding.rule, finding.engine), set()).add(finding.id)
        opened.add(finding.span.opened_ts)
    assert ids.keys() >= {("kv-preemption-pressure", 1), ("seq-slot-limit", 2)}
    assert {place: len(each) for place, each in ids.items()} == dict.fromkeys(ids, 1)
    assert len(opened) > len(ids), "no beginning moved: this shows nothing"


def test_a_window_that_slides_opens_each_once(looks: list[Diagnosis]) -> None:
    lives: dict[str, Life] = {}
    told: list[Change] = []
    for look in looks:
        lives, changes = observe(lives, look_at(look, look.window.end_ts))
        told += changes
    opened = [change.sighting.id for change in told if change.event in ("opened", "reopened")]
    assert finding_id("kvp", 1) in opened
    assert len(opened) == len(set(opened))


def test_engines_have_ids_of_their_own() -> None:
    assert len({finding_id("kvp", engine) for engine in range(5000)}) == 5000

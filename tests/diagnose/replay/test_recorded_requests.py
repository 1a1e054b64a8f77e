"""What befell a request comes back from its log, however many there are."""

from __future__ import annotations

from random import Random

import pytest

from diagnose.replay import recorded_texts, simulate
from diagnose.replay.workload import Answer, Transfers
from tests.diagnose.replay.loads import recording, settings, storm, workload_of


def test_texts_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = recording(settings(), storm(Random(5), seconds=8.0))
    whole = simulate(workload_of(engine))
    monkeypatch.setattr(recorded_texts, "NAMED", 3)
    assert simulate(workload_of(engine)).measures == whole.measures


def test_a_store_has_what_it_had_after_as_many_evictions() -> None:
    first = Answer(num_preemptions=0, reach=0, is_async=False)
    saved = Answer(num_preemptions=2, reach=96, is_async=True)
    transfers = Transfers(answers=(first, saved))
    assert [transfers.answer(n) for n in range(4)] == [first, first, saved, saved]
    assert Transfers().answer(0) is None

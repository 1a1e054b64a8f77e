"""What-ifs in a report: the numbers of the replay, how far to trust them, how to undo a change."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from diagnose.diagnosis import diagnose
from diagnose.document import Bullets, Table, plain
from diagnose.incident import write_incident
from diagnose.incident.predictions import WhatIf, undo_of, write_whatifs
from diagnose.markdown import to_markdown
from diagnose.reading import Scope
from diagnose.replay import read_workload
from diagnose.replay.prediction import Changed, Prediction, Trust, predict
from diagnose.replay.whatif_words import headline
from tests.dashboard.logs import ENGINE, memory, storm
from tests.diagnose.logs import MemoryLog


@cache
def storm_log() -> MemoryLog:
    return memory(storm(num_requests=30))


@cache
def whatif() -> WhatIf:
    prediction = predict(read_workload(storm_log(), ENGINE), {"max_num_seqs": 9}, num_replays=2)
    return WhatIf(scope=diagnose(storm_log()).engines[0].scope, prediction=prediction)


def changed(**own: object) -> Prediction:
    (change,) = whatif().prediction.changes
    return replace(whatif().prediction, changes=(replace(change, **own),))


def table_of(told: WhatIf) -> Table:
    (table,) = [each for each in write_whatifs([told], level=2) if isinstance(each, Table)]
    return table


def test_a_report_has_the_what_ifs_of_its_engine_alone() -> None:
    found = diagnose(storm_log())
    stranger = replace(whatif(), scope=Scope(ENGINE + 1, 1, 2))
    report = to_markdown(write_incident(storm_log(), found, [whatif(), stranger]))
    assert report.count("## What a change would do") == 1
    assert report.replace("\\", "").count(headline(whatif().prediction)) == 1
    assert "What a change would do" not in to_markdown(write_incident(storm_log(), found))


def test_the_table_is_the_prediction() -> None:
    row = table_of(whatif()).rows[0]
    counted = whatif().prediction.of("num_preemptions")
    assert counted.predicted is not None
    assert counted.replayed is not None
    assert [plain(cell) for cell in row[:3]] == [
        "preemptions", f"{counted.recorded:.0f}", f"{counted.replayed:.0f}"
    ]  # fmt: skip
    assert row[4] == f"{counted.predicted:.0f}"


def test_what_cannot_be_trusted_is_withheld_and_said() -> None:
    quantities = tuple(
        replace(each, trust=Trust.WITHHELD, predicted=None, low=None, high=None)
        for each in whatif().prediction.quantities
    )
    doubtful = replace(whatif(), prediction=replace(whatif().prediction, quantities=quantities))
    assert {row[4] for row in table_of(doubtful).rows} == {"withheld"}
    (notes,) = [each for each in write_whatifs([doubtful], level=2) if isinstance(each, Bullets)]
    assert any("over 25 %" in plain(item) for item in notes.items)


def test_a_change_is_undone_by_the_flag_that_was_given_or_by_none() -> None:
    assert undo_of(whatif().prediction) == "--max-num-seqs 32"
    assert undo_of(changed(name="enable_prefix_caching", before=True, after=False)) == (
        "--enable-prefix-caching"
    )
    assert undo_of(changed(name="max_loras", before=None, after=4)) == "without --max-loras 4"


def test_a_load_that_would_differ_has_no_flag() -> None:
    slower = replace(whatif().prediction, changes=(Changed(name="rate", before=1.0, after=0.5),))
    text = " ".join(str(each) for each in write_whatifs([replace(whatif(), prediction=slower)],
                                                        level=2))  # fmt: skip
    assert "Flags: " not in text

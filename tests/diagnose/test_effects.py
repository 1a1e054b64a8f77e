"""Effects of actions are predicted by replays, within a limit of work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.causes.attribution import WORK_LIMIT
from diagnose.diagnosis import diagnose
from diagnose.effects import MAX_REPLAYS, Predictions, predict_effects
from diagnose.finding import Action, Finding
from diagnose.reading import Scope
from diagnose.report import write_report
from tests.diagnose.logs import MemoryLog, config, finding_of, run, storm_arrivals


@pytest.fixture(scope="module")
def log() -> MemoryLog:
    return run(config(), storm_arrivals()).log()


@pytest.fixture(scope="module")
def finding(log: MemoryLog) -> Finding:
    return finding_of(log, "kv-preemption-pressure")


def of(action: Action, name: str) -> tuple[float | None, float | None]:
    return next((e.before, e.after) for e in action.predicted if e.name == name)


def predicted(log: MemoryLog, finding: Finding, limit: int | None) -> Predictions:
    rows = log.query("SELECT min(ts) AS start, max(ts) AS last FROM steps").to_pylist()
    stretch = Scope(finding.engine, rows[0]["start"], rows[0]["last"])
    return predict_effects(log, stretch, finding.actions, limit)


def test_every_action_with_a_flag_says_what_it_would_do(finding: Finding) -> None:
    assert len(finding.actions) == 3
    for action in finding.actions:
        before, after = of(action, "num_preemptions")
        assert before is not None
        assert after is not None
        assert after < before


def test_the_error_of_the_back_test_stands_beside_it(finding: Finding) -> None:
    errors = {effect.name: effect.error for effect in finding.actions[0].predicted}
    assert errors["num_preemptions"] is not None
    assert abs(errors["num_preemptions"]) < 0.1


def test_all_actions_are_compared_with_the_same_replay(finding: Finding) -> None:
    assert len({of(action, "num_preemptions")[0] for action in finding.actions}) == 1


def test_the_report_has_them_as_a_table_within_its_width(log: MemoryLog) -> None:
    text = write_report(diagnose(log)).text()
    assert "replayed" in text
    assert "as it was" in text
    assert "replay error on this run: preemptions" in text
    assert max(map(len, text.splitlines())) <= 100


def test_no_work_is_no_prediction_and_says_so(log: MemoryLog, finding: Finding) -> None:
    bare = replace(finding, actions=tuple(replace(a, predicted=()) for a in finding.actions))
    told = predicted(log, bare, 0)
    assert [action.predicted for action in told.actions] == [(), (), ()]
    assert told.sentence.startswith("No effect is predicted: that takes a replay")


def test_too_little_work_names_what_it_takes(log: MemoryLog, finding: Finding) -> None:
    told = predicted(log, finding, 1000)
    assert "4 replays of 1,171 steps (stepscope diagnose --thorough)" in told.sentence


def test_a_long_episode_is_replayed_from_its_beginning(log: MemoryLog, finding: Finding) -> None:
    whole = predicted(log, finding, WORK_LIMIT)
    part = predicted(log, finding, 4800)
    assert f"{MAX_REPLAYS - 1} times each" in whole.sentence
    assert "once each" in part.sentence
    assert "of 7.1 s replayed" in whole.sentence
    assert "of 3.6 s replayed" in part.sentence


def test_the_same_log_gives_the_same_effects(log: MemoryLog, finding: Finding) -> None:
    assert predicted(log, finding, WORK_LIMIT) == predicted(log, finding, WORK_LIMIT)

"""The record of a replay is the record that it was made from, whatever happened in the run."""

from __future__ import annotations

from hypothesis import assume, given

from tests.diagnose.replay.recording import assert_replays
from tests.engine.play.draws import FEATURES, scenarios
from tests.engine.play.player import Player
from tests.engine.play.scenario import Scenario
from tests.engine.test_scheduler_properties import BOTH_PATHS, examples

REPLAYED = tuple(name for name in FEATURES if name != "pipeline")
"""A stop in a pipeline of asynchronous steps is not always replayed to the row yet."""


@BOTH_PATHS
@examples(40)
@given(scenarios(REPLAYED))
def test_a_replay_records_what_was_recorded(array_path: bool, scenario: Scenario) -> None:
    # A token that is appended and ends its request is replayed as one that does not end it.
    assume(all(each.kind != "jump" for each in scenario.disturbances))
    play = Player(scenario, array_path=array_path).run()
    play.scheduler.journal.flush()
    assert_replays(play.recorder, scenario.config, array_path=not array_path)

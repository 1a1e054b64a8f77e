"""A proof keeps its order: recorded, predicted, changed, compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.whatif.__main__ import main
from benchmarks.whatif.playing import folder_of
from benchmarks.whatif.proof import change, predict, read_predictions, record
from benchmarks.whatif.sending import PlayError
from benchmarks.whatif.tables import report
from tests.benchmarks.whatif.runs import small_run

RUN = small_run()


def test_a_run_is_recorded_predicted_changed_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "predictions.json"
    record(RUN, tmp_path)
    predict(RUN, tmp_path, file)
    before = "\n".join(report(tmp_path, read_predictions(file), [RUN]))
    assert "| small | max_num_seqs 16 → 3 | not made |" in before
    change(RUN, tmp_path, file)
    after = "\n".join(report(tmp_path, read_predictions(file), [RUN]))
    told = read_predictions(file)["small"]["quantities"]["num_preemptions"]
    assert told["recorded"] > told["predicted"] == 0
    assert f"| small | max_num_seqs 16 → 3 | {told['recorded']} → 0; 0 |" in after


def test_what_was_predicted_can_be_written_anew_until_the_change_is_made(tmp_path: Path) -> None:
    file = tmp_path / "predictions.json"
    record(RUN, tmp_path)
    predict(RUN, tmp_path, file)
    predict(RUN, tmp_path, file)
    change(RUN, tmp_path, file)
    told = file.read_bytes()
    with pytest.raises(PlayError, match=r"made already .* another seed"):
        predict(RUN, tmp_path, file)
    assert file.read_bytes() == told


def test_a_change_that_was_begun_and_not_ended_counts_as_made(tmp_path: Path) -> None:
    file = tmp_path / "predictions.json"
    record(RUN, tmp_path)
    folder_of(RUN, tmp_path, is_changed=True).mkdir()
    with pytest.raises(PlayError, match="made already"):
        predict(RUN, tmp_path, file)
    assert not file.exists()


def test_nothing_is_changed_before_it_was_predicted(tmp_path: Path) -> None:
    file = tmp_path / "predictions.json"
    record(RUN, tmp_path)
    with pytest.raises(PlayError, match="says nothing of small with seed 3"):
        change(RUN, tmp_path, file)
    assert not folder_of(RUN, tmp_path, is_changed=True).exists()


def test_a_prediction_of_another_seed_is_none(tmp_path: Path) -> None:
    file = tmp_path / "predictions.json"
    record(RUN, tmp_path)
    predict(RUN, tmp_path, file)
    with pytest.raises(PlayError, match="with seed 4"):
        change(replace(RUN, seed=4), tmp_path, file)
    tables = "\n".join(report(tmp_path, read_predictions(file), [replace(RUN, seed=4)]))
    assert "| small | 4 | not played" in tables


def test_nothing_is_predicted_of_a_run_that_was_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(PlayError, match="has not been recorded"):
        predict(RUN, tmp_path, tmp_path / "predictions.json")


def test_a_run_that_was_begun_and_not_ended_is_told(tmp_path: Path) -> None:
    folder_of(RUN, tmp_path, is_changed=False).mkdir()
    with pytest.raises(PlayError, match="begun and not ended: remove it"):
        record(RUN, tmp_path)


def test_the_command_tells_what_was_refused_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "predictions.json"
    file.write_text(json.dumps({}))
    folder = str(tmp_path)
    assert main(["change", "--file", str(file), folder, "sim-open", "vllm-open"]) == 1
    said = capsys.readouterr().err
    assert "sim-open: PlayError" in said
    assert "vllm-open: PlayError" in said
    assert main(["predict", folder, str(file), "served-loop"]) == 1
    assert "has not been recorded" in capsys.readouterr().err
    assert json.loads(file.read_text()) == {}

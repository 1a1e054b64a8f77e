"""The fault matrix itself: diagnosers that know nothing must fail it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.faults import chosen, main, seeds_of
from benchmarks.provoking.matrix import Answer, Ask, Matrix, try_all
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.scenarios import read_all
from benchmarks.provoking.table import as_json, confusion, write
from diagnose.reading import QueryLog
from diagnose.rules import RULES
from tests.diagnose.logs import described, log_of


def no_run(attempt: Attempt) -> QueryLog:
    return log_of(described())


def broken_run(attempt: Attempt) -> QueryLog:
    raise OSError("no room")


def scenario(name: str, expected: str | None, silent: tuple[str, ...] = ()) -> Scenario:
    return Scenario(name=name, source="scripted", expected=expected, provoke=no_run, silent=silent)


FAULTS = (scenario("leaks", "kv-block-leak"), scenario("hangs", "worker-hang"))
CALM = scenario("calm", None)
LOOKS_LIKE_A_LEAK = scenario("leases", "pd-producer-lease-expiry", silent=("kv-block-leak",))


def says(rule: str) -> Ask:
    answer = Answer(first=rule, sentence="...", above_info=(rule,), fired=frozenset({rule}))
    return lambda log: answer


def says_nothing(log: QueryLog) -> Answer:
    return Answer()


def matrix_of(*scenarios: Scenario, ask: Ask) -> Matrix:
    return Matrix(list(try_all(scenarios, seeds=[1, 2], loads=[1.0], ask=ask)))


def test_a_diagnoser_that_says_nothing_names_none_of_all_faults() -> None:
    faults = [each for each in read_all() if each.expected is not None]
    matrix = matrix_of(*(scenario(each.name, each.expected) for each in faults), ask=says_nothing)
    assert matrix.figures.right.good == 0
    assert len(matrix.failures) == 2 * len(faults)
    assert not matrix.figures.are_met


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_diagnoser_that_always_says_the_same_fails(rule: str) -> None:
    labels = [scenario(each.name, each.expected, each.silent) for each in read_all()]
    assert not matrix_of(*labels, ask=says(rule)).figures.are_met


def test_a_finding_in_a_run_without_a_fault_fails() -> None:
    matrix = matrix_of(CALM, ask=says("kv-block-leak"))
    assert (matrix.figures.clean.good, matrix.figures.clean.all) == (0, 2)
    assert not matrix.figures.are_met


def test_a_rule_that_had_to_be_silent_fails_though_it_is_not_first() -> None:
    answer = Answer(
        first="pd-producer-lease-expiry",
        above_info=("pd-producer-lease-expiry",),
        fired=frozenset({"pd-producer-lease-expiry", "kv-block-leak"}),
    )
    matrix = matrix_of(LOOKS_LIKE_A_LEAK, ask=lambda log: answer)
    assert matrix.figures.right.ratio == 1.0
    assert matrix.figures.silent.ratio == 0.0
    assert not matrix.figures.are_met


def test_a_guard_that_had_to_be_seen_and_was_not_fails() -> None:
    guarded = replace(CALM, shown=("guard-light-preemption",))
    assert matrix_of(guarded, ask=says_nothing).figures.right.good == 0
    seen = Answer(guarding=frozenset({"guard-light-preemption"}))
    assert matrix_of(guarded, ask=lambda log: seen).figures.right.good == 2


def test_a_run_that_cannot_be_made_counts_against_every_figure() -> None:
    runs = [
        Scenario(name="a", source="scripted", expected="worker-hang", provoke=broken_run),
        Scenario(
            name="b", source="scripted", expected=None, silent=("worker-hang",), provoke=broken_run
        ),
    ]
    figures = matrix_of(*runs, ask=says_nothing).figures
    assert (figures.right.good, figures.clean.good, figures.silent.good) == (0, 0, 0)


def test_right_answers_meet_the_goal() -> None:
    matrix = matrix_of(FAULTS[0], ask=says("kv-block-leak"))
    matrix.trials += matrix_of(CALM, ask=says_nothing).trials
    assert matrix.figures.are_met
    assert not matrix.failures


def test_the_table_tells_what_came_instead_and_which_rules_never_fired() -> None:
    matrix = matrix_of(*FAULTS, ask=says("kv-block-leak"))
    assert confusion(matrix)["worker-hang"] == {"kv-block-leak": 2}
    text = "\n".join(write(matrix, ["kv-block-leak", "worker-hang", "guard-counter-reset"]))
    assert "FAILED hangs (seed 1, load 1): kv-block-leak instead of worker-hang" in text
    assert "rules never seen to fire: worker-hang" in text
    assert "guards never seen to guard: guard-counter-reset" in text
    assert "right rule first    50.00% of 4" in text


def test_the_json_has_every_trial() -> None:
    matrix = matrix_of(*FAULTS, CALM, ask=says("worker-hang"))
    told = as_json(matrix)
    assert [trial["expected"] for trial in told["trials"][::2]] == [
        "kv-block-leak",
        "worker-hang",
        None,
    ]
    assert told["figures"]["right_first"] == {"good": 2, "all": 4, "ratio": 0.5}
    assert told["are_met"] is False


def test_seeds_are_one_or_a_range() -> None:
    assert list(seeds_of("7")) == [7]
    assert list(seeds_of("100-102")) == [100, 101, 102]
    with pytest.raises(ValueError, match="the last is before the first"):
        seeds_of("5-4")


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(KeyError, match="see --list"):
        chosen(FAULTS, ["leek"])
    assert chosen(FAULTS, ["worker-hang"]) == [FAULTS[1]]


def test_every_provoked_and_silenced_rule_exists() -> None:
    for each in read_all():
        assert {*each.silent, *({each.expected} - {None})} <= {*RULES, "undetermined"}, each.name


def test_the_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--live", "--vllm"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [each.name for each in read_all()]


def test_nothing_is_left_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    list(try_all([CALM], seeds=[1], loads=[1.0], ask=says_nothing))
    assert not list(tmp_path.iterdir())


def test_runs_are_made_in_other_processes_and_judged_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "matrix.json"
    one = ["--only", "healthy-light-traffic-scraped", "--seed", "1", "--load", "0.5"]
    assert main([*one, "--json", str(written)]) == 0
    assert "no fault: clean    100.00% of 1" in capsys.readouterr().out
    (trial,) = json.loads(written.read_text())["trials"]
    assert trial["scenario"] == "healthy-light-traffic-scraped"
    assert trial["first"] == "no-scheduler-fault"

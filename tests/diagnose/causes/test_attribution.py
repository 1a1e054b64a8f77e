"""Shares of the preemptions of a run, by replaying it without each change."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from benchmarks.provoking.recording import Recording
from benchmarks.provoking.recording import log_of as recorded_log
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, poisson
from diagnose.causes.attribution import LEAST_WORK, WORK_LIMIT, Effort, work_limit
from diagnose.changes import Explanation
from diagnose.diagnosis import diagnose, read_context
from diagnose.json_output import to_document
from diagnose.text.finding_text import shares_line
from diagnose.window import choose_window, engines_in
from tests.diagnose.logs import Arrival, MemoryLog, config, log_of, pressed, run


def explained(log: MemoryLog, effort: Effort = "usual") -> Explanation:
    window = choose_window(log)
    storm = read_context(log, window, engines_in(log, window)[0], effort).storm
    assert storm is not None
    return storm.explanation


@cache
def longer_outputs() -> MemoryLog:
    arrivals = [Arrival(30 * i, max_tokens=60) for i in range(30)]
    arrivals += [Arrival(900 + 30 * i, max_tokens=450) for i in range(20)]
    return run(config(), arrivals).log()


@cache
def burst_of_longer_outputs() -> MemoryLog:
    """Outputs grow; later 16 requests come at once."""
    arrivals = [Arrival(30 * i, max_tokens=60) for i in range(30)]
    arrivals += [Arrival(900 + 30 * i, max_tokens=240) for i in range(20)]
    arrivals += [Arrival(1150, max_tokens=240) for _ in range(16)]
    return run(config(), arrivals).log()


def test_one_change_accounts_for_all_that_it_alone_made() -> None:
    explanation = explained(longer_outputs())
    first = explanation.shares[0]
    assert (first.kind, explanation.cause.kind) == ("longer_outputs", "longer_outputs")
    assert first.ratio > 0.9


@cache
def prompts_that_no_longer_share() -> MemoryLog:
    """For 30 s prompts begin with the same 400 tokens, then each with its own."""
    random = Random(1)
    engine = Recording(settings(num_blocks=300), random)

    def call(at: float) -> Call:
        shared = "system" if at < 30 else None
        outputs = about(random, 160)
        return Call(
            at=at, num_prompt_tokens=480, max_tokens=outputs, shared=shared, num_shared_tokens=400
        )

    engine.send(poisson(random, call, rate=3.0, start=0, end=60))
    engine.run()
    return recorded_log(engine)


def test_lost_sharing_accounts_for_what_it_made() -> None:
    explanation = explained(prompts_that_no_longer_share())
    first = explanation.shares[0]
    assert (first.name, explanation.cause.kind) == ("prefix hit rate", "new_traffic")
    assert first.ratio > 0.9


def test_two_changes_share_what_they_made() -> None:
    explanation = explained(burst_of_longer_outputs())
    ratios = {share.kind: share.ratio for share in explanation.shares}
    assert ratios["burst_of_arrivals"] > 0.1
    assert ratios["longer_outputs"] > 0.1


@pytest.mark.parametrize(
    "log", [longer_outputs, burst_of_longer_outputs, prompts_that_no_longer_share]
)
def test_shares_sum_to_the_recorded_count(log: object) -> None:
    assert callable(log)
    shares = explained(log()).shares
    num = len(log().query("SELECT 1 FROM preemptions").to_pylist())
    assert sum(share.num for share in shares) == pytest.approx(num)
    assert sum(share.ratio for share in shares) == pytest.approx(1)
    assert shares[-1].kind is None


def test_the_same_log_gives_the_same_shares_again() -> None:
    assert explained(longer_outputs()).shares == explained(longer_outputs()).shares


def test_nothing_is_shared_out_where_nothing_changed() -> None:
    explanation = explained(run(config(), [Arrival(1 + 7 * i) for i in range(120)]).log())
    assert explanation.shares == ()
    assert "nothing changed" in explanation.attribution.why


def test_a_log_that_cannot_be_replayed_says_why() -> None:
    explanation = explained(log_of(pressed(num_evicted=20)))
    assert explanation.shares == ()
    assert "shares are not worked out" in explanation.attribution.why


def test_without_effort_nothing_is_replayed() -> None:
    explanation = explained(longer_outputs(), "none")
    assert explanation.shares == ()
    assert explanation.cause.kind == "longer_outputs"


def test_too_much_work_is_left_to_who_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.causes.attribution.WORK_LIMIT", 0)
    monkeypatch.setattr("diagnose.causes.attribution.LEAST_WORK", 100)
    explanation = explained(longer_outputs())
    assert explanation.shares == ()
    assert (
        "stepscope diagnose --thorough" in explanation.confidence.why + explanation.attribution.why
    )
    assert explained(longer_outputs(), "thorough").shares


def test_a_day_leaves_less_work_than_a_quarter_of_an_hour() -> None:
    assert work_limit("usual", 1_000) > work_limit("usual", 5_000_000) == LEAST_WORK  # type: ignore[operator]
    assert work_limit("usual", 0) == WORK_LIMIT
    assert work_limit("thorough", 10**9) is None


def test_text_and_document_tell_the_shares_and_how_it_came_about() -> None:
    diagnosis = diagnose(longer_outputs())
    finding = next(f for f in diagnosis.findings if f.rule == "kv-preemption-pressure")
    assert shares_line(finding.shares).startswith("longer outputs ")
    told = next(f for f in to_document(diagnosis)["findings"] if f["id"] == finding.id)
    assert told["shares"][0]["kind"] == "longer_outputs"
    assert [link["stage"] for link in told["chain"]] == ["cause", "first_failure", "impact"]
    moments = [link["ts"] for link in told["chain"]]
    assert moments == sorted(moments)
    assert "were free; " in told["chain"][1]["sentence"]

"""A rule of one's own is judged as any other: found, well, not measured, silenced."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.diagnosis import diagnose
from diagnose.finding import Finding, Healthy, NotMeasured, RuleVerdict, Severity, Suppressed
from diagnose.json_output import to_json
from diagnose.life.look import look_at
from diagnose.life.machine import observe
from diagnose.life.rows import row_of
from diagnose.rules import RULES
from diagnose.user_rules.deciding import prefix_of, rule_of
from diagnose.user_rules.definition import UserRule
from diagnose.user_rules.loading import load_rules, rules_directory, with_own
from diagnose.user_rules.reading import read_rule
from telemetry.store import Log, open_log
from telemetry.store.guard import Limits
from telemetry.store.posting import checked
from tests.dashboard.logs import write_log
from tests.diagnose.logs import MemoryLog, described, log_of, steps
from tests.diagnose.scrapes import calm, storm
from tests.diagnose.user_rules.files import changed, example, put
from tests.telemetry.log_builder import START

ID = "long-prompt-quota"


def arrivals(num_long: int, num_short: int) -> MemoryLog:
    log = steps(described(max_num_seqs=32, num_usable_blocks=100_000), 60)
    for request in range(num_long + num_short):
        log.arrived(request, num_prompt_tokens=9000 if request < num_long else 100)
    return log_of(steps(log, 60))


def judged(log: MemoryLog | Log, rule: UserRule) -> RuleVerdict | None:
    engine = diagnose(log, rules=with_own([rule])).engines[0]
    said = (*engine.findings, *engine.healthy, *engine.not_measured, *engine.suppressed)
    return next((verdict for verdict in said if verdict.rule == rule.id), None)


@pytest.fixture
def rule(tmp_path: Path) -> UserRule:
    return read_rule(put(tmp_path, example()))


def test_over_the_threshold_it_finds(rule: UserRule) -> None:
    found = judged(arrivals(30, 70), rule)
    assert isinstance(found, Finding)
    assert found.sentence == "30.0 % of 100 prompts are over 8,000 tokens."
    assert found.severity == Severity.high
    assert found.cause.sentence == "longer prompts: 30 long prompts, a fifth was agreed"
    assert found.actions[0].what == "send prompts over 8,000 tokens to the batch deployment"
    (evidence,) = found.evidence
    assert (evidence.name, evidence.value, evidence.threshold) == (
        "share of long prompts",
        0.3,
        0.2,
    )


def test_the_evidence_s_statement_gives_the_number_again(rule: UserRule) -> None:
    log = arrivals(30, 70)
    found = judged(log, rule)
    assert isinstance(found, Finding)
    (row,) = log.query(found.evidence[0].sql).to_pylist()
    assert row["share"] == found.evidence[0].value


def test_at_the_threshold_it_is_well(rule: UserRule) -> None:
    said = judged(arrivals(20, 80), rule)
    assert isinstance(said, Healthy)
    assert (said.name, said.number) == ("long prompts", "20.0 % of 100")


def test_too_little_data_is_not_measured(rule: UserRule) -> None:
    said = judged(arrivals(49, 0), rule)
    assert isinstance(said, NotMeasured)
    assert said.missing == ("request_arrivals.num_prompt_tokens",)
    assert said.why == "num_arrivals is 49, 50 are needed"


def test_what_the_log_lacks_is_named(rule: UserRule) -> None:
    needs = (("steps", "num_running"), ("steps", "bitmask_ns"))
    said = judged(arrivals(30, 70), replace(rule, needs=needs))
    assert isinstance(said, NotMeasured)
    assert said.missing == ("steps.bitmask_ns",)


def test_an_engine_without_steps_is_not_measured(rule: UserRule) -> None:
    said = judged(log_of(calm()), rule)
    assert isinstance(said, NotMeasured)
    assert said.why == "it judges steps"


def test_a_rule_that_explains_it_silences_it(rule: UserRule, tmp_path: Path) -> None:
    text = changed(
        ("id: long-prompt-quota", "id: any-arrivals"), ("above: max_share", "above: zero")
    )
    text = text.replace("thresholds:", "thresholds:\n  zero: {value: 0, source: none}", 1)
    other = read_rule(put(tmp_path, text, "any.yaml"))
    silenced = replace(rule, silenced_by=("any-arrivals",))
    engine = diagnose(arrivals(30, 70), rules=with_own([other, silenced])).engines[0]
    assert [each for each in engine.suppressed if each.rule == ID] == [
        Suppressed(rule=ID, by="any-arrivals", number="share of long prompts 30.0 %")
    ]


def test_a_finding_of_its_own_makes_the_verdict(rule: UserRule) -> None:
    assert diagnose(arrivals(30, 70), rules=with_own([rule])).verdict.rule == ID


def test_without_the_rule_nothing_is_said_of_it() -> None:
    engine = diagnose(arrivals(30, 70)).engines[0]
    assert ID not in to_json(diagnose(arrivals(30, 70)))
    assert engine.verdict.rule == "no-scheduler-fault"


def test_it_stands_in_json_under_its_id(rule: UserRule) -> None:
    document = json.loads(to_json(diagnose(arrivals(30, 70), rules=with_own([rule]))))
    assert [finding["rule"] for finding in document["findings"]] == [ID]
    assert document["findings"][0]["id"].startswith(prefix_of(ID))


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT 1 AS num_arrivals, 1 AS share FROM steps WHERE {where}", "more than one row"),
        ("SELECT 1 AS num_arrivals, 1 AS share WHERE 1 = 0 AND {engine} = 1", "no row"),
        ("SELECT 99 AS num_arrivals, {engine} AS x", "gives no column share"),
        ("SELECT 99 AS num_arrivals, NULL AS share, {engine} AS x", "share is not measured"),
        ("SELECT 99 AS num_arrivals, 'a' AS share, {engine} AS x", "share is no number"),
        ("SELECT 99 AS num_arrivals, 'nan'::DOUBLE AS share, {engine} AS x", "share is no number"),
    ],
)
def test_an_answer_that_says_nothing_is_not_measured(rule: UserRule, sql: str, why: str) -> None:
    said = judged(arrivals(30, 70), replace(rule, sql=sql))
    assert isinstance(said, NotMeasured)
    assert why in said.why


def test_its_findings_have_a_prefix_that_no_other_has() -> None:
    prefixes = {each.prefix for each in RULES.values()}
    assert prefix_of(ID) not in prefixes
    assert prefix_of(ID) != prefix_of("other-quota")


def test_it_is_judged_before_the_verdict_of_no_fault(rule: UserRule) -> None:
    ids = [each.id for each in with_own([rule])]
    assert ids[-2:] == [ID, "no-scheduler-fault"]
    assert set(ids) == {*RULES, ID}


def test_a_setting_that_is_set_already_is_not_advised(tmp_path: Path) -> None:
    flag = "    flag: --max-num-seqs\n    to: '32'\n    applies: client"
    own = read_rule(put(tmp_path, changed(("    applies: client", flag))))
    found = judged(arrivals(30, 70), own)
    assert isinstance(found, Finding)
    assert found.actions == ()


def test_the_directory_is_the_one_that_is_named(tmp_path: Path) -> None:
    named, said, log = tmp_path / "named", tmp_path / "said", tmp_path / "log"
    for each in (named, said, log / "rules"):
        each.mkdir(parents=True)
    environ = {"STEPSCOPE_RULES": str(said)}
    assert rules_directory(named, log, environ) == named
    assert rules_directory(None, log, environ) == said
    assert rules_directory(None, log, {}) == log / "rules"
    assert rules_directory(None, tmp_path, {}) is None
    assert load_rules(None) == ()


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"STEPSCOPE_RULES is .*: there is no such directory"):
        rules_directory(None, None, {"STEPSCOPE_RULES": str(tmp_path / "nowhere")})


def test_its_rule_is_made_of_its_file(rule: UserRule) -> None:
    made = rule_of(rule)
    assert (made.id, made.version, made.silenced_by) == (ID, 1, ("kv-block-leak",))
    assert made.sections()[""] == f"{ID}: more long prompts arrive than was agreed."


def test_its_findings_have_the_life_of_ours(rule: UserRule) -> None:
    look = look_at(diagnose(arrivals(30, 70), rules=with_own([rule])), START)
    _, changes = observe({}, look)
    (row,) = [row for row in map(row_of, changes) if row["rule"] == ID]
    assert (row["event"], row["severity"]) == ("opened", "high")
    assert checked([row]) == [row]


def test_a_rule_on_scrapes_judges_an_engine_without_steps(tmp_path: Path) -> None:
    own = read_rule(put(tmp_path, scraping()))
    found = judged(log_of(storm()), own)
    assert isinstance(found, Finding)
    assert found.sentence == "12 requests waited at most."
    assert isinstance(judged(log_of(calm()), own), Healthy)


def test_a_rule_on_scrapes_does_not_judge_steps(tmp_path: Path) -> None:
    said = judged(arrivals(30, 70), read_rule(put(tmp_path, scraping())))
    assert isinstance(said, NotMeasured)
    assert (said.missing, said.why) == (("metric_intervals.num_waiting",), "it judges scrapes")


def scraping() -> str:
    """Returns the example as a rule on scrapes: ten requests or more that wait."""
    text = changed(
        ("version: 1\n", "version: 1\njudges: scrapes\n"),
        ("needs: [request_arrivals.num_prompt_tokens]", "needs: [metric_intervals.num_waiting]"),
        ("max_share: {value: 0.2,", "max_share: {value: 10,"),
        ("min_arrivals: {value: 50,", "min_arrivals: {value: 3,"),
        ("{share:percent} of {num_arrivals} prompts are over {long_tokens} tokens",
         "{share} requests waited at most"),
    )  # fmt: skip
    start, end = text.index("sql: |"), text.index("enough:")
    sql = "SELECT count(*) AS num_arrivals, max(num_waiting)::BIGINT AS share, 0 AS num_long\n"
    return f"{text[:start]}sql: |\n  {sql}  FROM metric_intervals WHERE {{where}}\n{text[end:]}"


@pytest.mark.timeout(60)
def test_a_statement_that_takes_too_long_is_not_measured(rule: UserRule, tmp_path: Path) -> None:
    write_log(tmp_path / "log", *arrivals(30, 70).builders)
    slow = (
        "SELECT sum(hash(a.step, b.step, c.step, d.step)) AS num_arrivals, 1 AS share "
        "FROM steps a, steps b, steps c, steps d WHERE a.engine = {engine}"
    )
    with open_log(tmp_path / "log", limits=Limits(timeout_seconds=1.0)) as log:
        said = judged(log, replace(rule, sql=slow))
    assert isinstance(said, NotMeasured)
    assert "took longer than 1 s" in said.why

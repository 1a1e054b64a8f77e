"""A file is a rule, or a message says on which line it is none, and how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.finding import Severity
from diagnose.rule import PAGE_SECTIONS
from diagnose.user_rules.document import UserRuleError
from diagnose.user_rules.reading import read_rule
from tests.diagnose.user_rules.files import changed, example, put

WRONG = {
    "id of ours": ("id: long-prompt-quota", "id: worker-hang", 1, "a rule of Stepscope's own"),
    "id with capitals": ("id: long-prompt-quota", "id: Long_Prompts", 1, "small letters"),
    "version": ("version: 1", "version: 0", 2, "is '0': write a whole number from 1 to 2^31"),
    "version true": ("version: 1", "version: yes", 2, "is 'True'"),
    "severity": ("severity: high", "severity: urgent", 4, "one of info, medium, high, critical"),
    "unknown name": ("version: 1", "version: 1\nverison: 2", 3, "'verison' is not known"),
    "name twice": ("version: 1", "version: 1\nversion: 2", 3, "'version' stands here twice"),
    "empty title": ("title: more long prompts arrive than was agreed", "title:", 3, "is missing"),
    "section missing": ("  Source: Capacity plan of the service, section 3.\n", "", 7, "Source"),
    "section unknown": ("  Source:", "  Sauce: x\n  Source:", 11, "'Sauce' is not known"),
    "section that begins another": (
        "  Source: Capacity plan of the service, section 3.",
        "  Source: |\n    Plan\n    -----\n    more",
        11,
        "a line of dashes",
    ),
    "threshold no number": ("{value: 0.2,", "{value: many,", 14, "is 'many': write a number"),
    "threshold infinite": ("{value: 0.2,", "{value: .inf,", 14, "write a finite number"),
    "threshold without source": (
        '{value: 0.2, source: "capacity plan: a fifth"}', "{value: 0.2}", 14, "source: is missing",
    ),
    "needs a table": ("[request_arrivals.num_prompt", "[arrivals.num_prompt", 18, "no table"),
    "needs a column": ("s.num_prompt_tokens]", "s.prompt_tokens]", 18, "has no column"),
    "bare number compared": ("above: max_share,", "above: 0.2,", 29, "is no threshold"),
    "compared twice": ("above: max_share,", "above: max_share, below: max_share,", 29, "2 times"),
    "compared with nothing": (" above: max_share,", "", 29, "compared 0 times"),
    "no such column name": ("{column: share,", "{column: 'a b',", 29, "is no column"),
    "cause kind": ("{kind: longer_prompts,", "{kind: gremlins,", 35, "write one of burst_of"),
    "format": ("number: \"{share:percent}", "number: \"{share:hex}", 34, "no format of ours"),
    "format in a list": ("[\"{num_long} p", "[\"{num_long:x} p", 37, "no format of ours"),
    "flag without value": ("    applies:", "    flag: --x\n    applies:", 40, "together"),
    "applies": ("applies: client", "applies: sometimes", 40, "one of live, restart, client"),
    "rows and log": ("    expect: h", "    log: {}\n    expect: h", None, "either rows or log"),
    "table of a test": ("      request_arrivals:\n", "      arrivals:\n", None, "no table"),
    "column of a test": ("{request: 1, ts", "{requst: 1, ts", None, "has no column 'requst'"),
    "time of day": ("source: \"capacity plan: a fifth\"", "source: 2025-01-01", 14, "quote it"),
    "list for a text": ("title: more long prompts", "title: [x] #", 3, "a plain value is expected"),
}  # fmt: skip


def test_the_example_is_read_whole(tmp_path: Path) -> None:
    rule = read_rule(put(tmp_path, example()))
    assert (rule.id, rule.version, rule.severity) == ("long-prompt-quota", 1, Severity.high)
    assert [heading for heading, _ in rule.sections] == list(PAGE_SECTIONS)
    assert [(each.name, each.value) for each in rule.thresholds] == [
        ("max_share", 0.2), ("long_tokens", 8000), ("min_arrivals", 50),
    ]  # fmt: skip
    assert rule.needs == (("request_arrivals", "num_prompt_tokens"),)
    assert rule.columns == ("num_arrivals", "share")
    assert len(rule.trials) == 5


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_line(name: str, tmp_path: Path) -> None:
    old, new, line, message = WRONG[name]
    path = put(tmp_path, changed((old, new)))
    with pytest.raises(UserRuleError) as error:
        read_rule(path)
    place = str(path) if line is None else f"{path}:{line}: "
    assert str(error.value).startswith(place)
    assert str(message) in str(error.value)


def test_a_rule_needs_a_case_that_fires(tmp_path: Path) -> None:
    text = changed(("    expect: finding", "    expect: healthy")).replace(
        "expect: finding", "expect: healthy"
    )
    with pytest.raises(UserRuleError, match="none expects a finding"):
        read_rule(put(tmp_path, text))


def test_a_rule_needs_a_case_that_is_silent(tmp_path: Path) -> None:
    text = example().replace("expect: healthy", "expect: finding")
    text = text.replace("expect: not_measured", "expect: finding")
    with pytest.raises(UserRuleError, match="a case in which the rule is silent"):
        read_rule(put(tmp_path, text))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DROP TABLE steps -- {where}", "DROP is refused"),
        ("INSERT INTO steps SELECT 1 -- {where}", "INSERT is refused"),
        ("SELECT 1; SELECT 2 WHERE {where}", "2 statements were given"),
        ("SELECT * FROM read_csv('/etc/passwd') WHERE {where}", "read_csv is refused"),
        ("SELECT getenv('HOME') WHERE {where}", "getenv is refused"),
        ("ATTACH 'x.duckdb' -- {where}", "ATTACH is refused"),
        ("PRAGMA database_list -- {where}", "cannot be checked"),
        ("COPY steps TO 'x' -- {where}", "COPY is refused"),
        ("SELECT count(*) FROM steps", "looks at all engines and times"),
        ("SELECT {engine.__class__} FROM steps WHERE {where}", "syntax error"),
        ("SELECT {nothing} FROM steps WHERE {where}", "{nothing} is neither of"),
        ("SELECT 1) UNION (SELECT 2 WHERE {where}", "syntax error"),
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(
    sql: str, message: str, tmp_path: Path
) -> None:
    text = example()
    start, end = text.index("sql: |"), text.index("enough:")
    path = put(tmp_path, f"{text[:start]}sql: |\n  {sql}\n{text[end:]}")
    with pytest.raises(UserRuleError) as error:
        read_rule(path)
    assert str(error.value).startswith(f"{path}:19: sql: ")
    assert message in str(error.value)

"""Incident cases as an operator meets them: scrapes alone, imported and diagnosed.

    python -m tests.cases FILE [--json] [--only ID]

A case with series becomes a directory of scrapes, goes through `stepscope import prometheus` and
`stepscope diagnose --json`, and is one of

* named: at most three findings, the first of them one that the case expects (where none is above
  info, the verdict's rule counts as the first), or an expected guard stands in `suppressed[].by`;
* abstained: not named, and an expected rule is in `not_measured[]` with something missing that is
  absent from the case's pages;
* missed: neither.

Whatever else, it is false if a rule fires that the case says must not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

Case = dict[str, Any]
Document = dict[str, Any]
Diagnoser = Callable[[Path, Path], Document]
"""Diagnoses a directory of scrapes; the second directory is for its log."""

SHARED = Path(__file__).resolve().parents[2] / "shared"
CASES = SHARED / "cases" / "cases.json"
TOOL = SHARED / "tools" / "case_to_scrapes.py"
MOST_FINDINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a case. `fired` are the rules of its findings, the first one first."""

    case: str
    outcome: str
    expected: tuple[str, ...]
    verdict: str
    sentence: str
    fired: tuple[str, ...]
    false: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def line(self) -> str:
        """Returns it in one line."""
        got = ", ".join(self.fired) or self.verdict
        told = f"{self.outcome:9} {self.case}: expected {' or '.join(self.expected)}, got {got}"
        return told + (f"; must not fire: {', '.join(self.false)}" if self.false else "")


def read_cases(path: Path) -> list[Case]:
    """Returns the cases that have series."""
    cases: list[Case] = json.loads(path.read_text(encoding="utf-8"))
    return [case for case in cases if case["signals"].get("series")]


def write_scrapes(case: Case, directory: Path) -> None:
    """Writes a case as the tool does: a page a sample, and the launch flags."""
    directory.mkdir(parents=True)
    source = directory.with_suffix(".json")
    source.write_text(json.dumps([case]), encoding="utf-8")
    tool = _tool()
    argv, sys.argv = sys.argv, [str(TOOL), str(source), case["id"], str(directory)]
    try:
        tool.main()
    finally:
        sys.argv = argv


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("case_to_scrapes", TOOL)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{TOOL} cannot be loaded: it writes the cases as scrapes")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def diagnose_scrapes(scrapes: Path, log: Path) -> Document:
    """Imports a directory of scrapes and diagnoses it, by the command line's own functions."""
    _command("import", "prometheus", str(scrapes), "--log", str(log))
    document: Document = json.loads(_command("diagnose", "--json", "--log", str(log)))
    return document


def diagnose_nothing(scrapes: Path, log: Path) -> Document:
    """A diagnoser that says nothing at all: it must name no case."""
    verdict = {"rule": "not-enough-data", "sentence": ""}
    return {"verdict": verdict, "findings": [], "suppressed": [], "not_measured": []}


def _command(*words: str) -> str:
    from stepscope import main

    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        code = main(list(words))
    if code not in (0, 1, 3):
        raise RuntimeError(f"stepscope {' '.join(words)} ended with {code}: {told.getvalue()}")
    return told.getvalue()


def judge(case: Case, pages: str, document: Document) -> Outcome:
    """Returns what became of a case."""
    expected = tuple(case["expected_rules"])
    fired = tuple(finding["rule"] for finding in document["findings"])
    missing = {item["rule"]: item["missing"] for item in document["not_measured"]}
    absent = [
        name for rule in expected for name in missing.get(rule, ()) if _name_of(name) not in pages
    ]
    outcome = "missed"
    if _is_named(document, expected):
        outcome = "named"
    elif absent:
        outcome = "abstained"
    return Outcome(
        case=case["id"],
        outcome=outcome,
        expected=expected,
        verdict=document["verdict"]["rule"],
        sentence=document["verdict"]["sentence"],
        fired=fired,
        false=tuple(rule for rule in fired if rule in case["must_not_fire"]),
        missing=tuple(absent),
    )


def _name_of(missing: str) -> str:
    """Returns a series without its label: a page has the labels in an order of its own."""
    return missing.partition("{")[0]


def _is_named(document: Document, expected: tuple[str, ...]) -> bool:
    if any(item["by"] in expected for item in document["suppressed"]):
        return True
    findings = document["findings"]
    real = [finding["rule"] for finding in findings if finding["severity"] != "info"]
    first = real[0] if real else document["verdict"]["rule"]
    return len(findings) <= MOST_FINDINGS and first in expected


def run_cases(cases: Iterable[Case], diagnoser: Diagnoser = diagnose_scrapes) -> list[Outcome]:
    """Returns the outcome of each case."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="stepscope-cases-") as directory:
        for case in cases:
            scrapes = Path(directory) / case["id"] / "scrapes"
            write_scrapes(case, scrapes)
            document = diagnoser(scrapes, Path(directory) / case["id"] / "log")
            pages = "\n".join(page.read_text() for page in scrapes.glob("*.prom"))
            outcomes.append(judge(case, pages, document))
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """Returns the last line."""
    counts = Counter(outcome.outcome for outcome in outcomes)
    false = sum(bool(outcome.false) for outcome in outcomes)
    told = ", ".join(f"{name} {counts[name]}" for name in ("named", "abstained", "missed"))
    return f"cases: {told}, false {false}"


def main() -> None:
    """Runs the cases of a file and prints what became of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=CASES)
    parser.add_argument("--json", action="store_true", help="every case, as JSON")
    parser.add_argument("--all", action="store_true", help="a line for every case, not only misses")
    parser.add_argument("--only", metavar="ID", help="one case")
    args = parser.parse_args()
    cases = [case for case in read_cases(args.file) if args.only in (None, case["id"])]
    outcomes = run_cases(cases)
    if args.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
        return
    for outcome in outcomes:
        if args.all or outcome.outcome == "missed" or outcome.false:
            print(outcome.line)
    print(summary(outcomes))


if __name__ == "__main__":
    main()

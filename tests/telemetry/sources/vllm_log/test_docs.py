"""docs/sources.md names every kind of line and every metric that a log can give."""

from __future__ import annotations

import re
from pathlib import Path

from telemetry.sources.vllm_log.errors import KINDS
from tests.telemetry.sources.vllm_log.builders import CAPTURED, import_file

PAGE = Path(__file__).parents[4] / "docs" / "sources.md"


def section() -> str:
    match = re.search(
        r"^## vLLM's log\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert match is not None, "docs/sources.md has no section on vLLM's log"
    return match[1]


def test_every_kind_of_line_is_explained() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section(), re.MULTILINE)) >= set(KINDS)


def test_every_metric_of_a_captured_log_is_explained(tmp_path: Path) -> None:
    named = set(re.findall(r"`(log:\w+)`", section()))
    for name in ("capture", "kv"):
        imported = import_file(CAPTURED / f"serve_{name}.log.gz", tmp_path / name)
        metrics = {row["metric"] for row in imported.rows("SELECT DISTINCT metric FROM samples")}
        assert metrics <= named


def test_both_numbers_of_the_storm_are_stated() -> None:
    assert re.search(r"log\s+prints\s+none.*counter\s+says\s+97", section(), re.DOTALL)

"""Writes what is generated from the rules into a directory, as `deploy/` holds it."""

from __future__ import annotations

from pathlib import Path

from diagnose.alerts.panels import dashboard_text
from diagnose.alerts.rules_file import RUNBOOKS, rules_text
from diagnose.alerts.runbooks import runbooks as pages

RULES_FILE = "prometheus/stepscope.rules.yml"
DASHBOARD_FILE = "grafana/stepscope.json"


def generated(*, runbooks: str = RUNBOOKS, max_num_seqs: int | None = None) -> dict[str, str]:
    """Returns every file by its path in the directory."""
    return {
        RULES_FILE: rules_text(runbooks=runbooks, max_num_seqs=max_num_seqs),
        DASHBOARD_FILE: dashboard_text(),
        **{f"prometheus/runbooks/{name}": text for name, text in pages().items()},
    }


def write(directory: Path, files: dict[str, str]) -> list[Path]:
    """Writes files below a directory; returns their paths."""
    paths = []
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths

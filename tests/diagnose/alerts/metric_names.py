"""Which series there are, with which labels: a real vLLM's captured pages, and docs/metrics.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client.parser import text_string_to_metric_families

from tests.captured import captured_scrapes

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
CONNECTOR = ("vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_kv_expired_reqs_total")
"""Counters of a connector that no captured page has; `telemetry.sources.prometheus.names` does."""
TARGET = frozenset({"job", "instance"})
"""Labels that Prometheus adds."""
SETTINGS = {"stepscope:max_num_seqs": frozenset({"engine", "model_name"})}
"""What whoever deploys says."""


@cache
def known() -> dict[str, frozenset[str]]:
    """Returns the labels of each series by its name."""
    found: dict[str, set[str]] = {name: {"engine", "model_name"} for name in CONNECTOR}
    with TemporaryDirectory() as directory:
        for name in ("preemption_storm", "connector_stall"):
            for page in captured_scrapes(name, Path(directory)).glob("*.prom"):
                for family in text_string_to_metric_families(page.read_text()):
                    for sample in family.samples:
                        found.setdefault(sample.name, set()).update(sample.labels)
    for name, labels in _documented():
        found.setdefault(name, set()).update(labels)
    found |= {"up": set(), **{name: set(labels) for name, labels in SETTINGS.items()}}
    return {name: frozenset(labels) | TARGET for name, labels in found.items()}


def _documented() -> list[tuple[str, set[str]]]:
    rows = re.findall(r"^\| `([\w:]+)` \| (\w+) \| ([^|]*)\|", DOCS.read_text(), re.MULTILINE)
    listed = []
    for name, kind, labels in rows:
        told = set(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            listed += [(f"{name}_{part}", told | {"le"}) for part in ("bucket", "sum", "count")]
        listed.append((name, told))
    return listed


def matched_labels(expr: str) -> list[tuple[str, set[str]]]:
    """Returns each series of an expression that is selected by labels, with those labels."""
    selected = re.findall(r"([a-z][\w:]+)\{([^}]*)\}", without_texts(expr))
    return [(name, set(re.findall(r"\w+", inner))) for name, inner in selected]


def without_texts(expr: str) -> str:
    """Returns an expression with its quoted texts emptied."""
    return re.sub(r'"[^"]*"', "", expr)


def regrouped_labels(expr: str) -> set[str]:
    """Returns the labels that an expression takes away, keeps or matches on."""
    lists = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expr)
    return {label.strip() for one in lists for label in one.split(",") if label.strip()}

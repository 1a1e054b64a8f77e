"""Every name of vLLM's that the hooks use is one that is looked for before they are put in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import telemetry.sources.vllm
from telemetry.sources.vllm.needs import NEEDS

PACKAGE = Path(telemetry.sources.vllm.__file__).parent
SOURCES = sorted(set(PACKAGE.glob("*.py")) - {PACKAGE / "description.py"})
"""All but the description, which takes each value as it finds it."""

CALLED = {
    "Scheduler": ("scheduler", "_scheduler"),
    "Request": ("request", "victim", "beneficiary", "session"),
    "SchedulerOutput": ("scheduler_output",),
    "KVCacheCoordinator": ("coordinator", "_coordinator"),
    "BlockPool": ("pool", "_pool"),
}
"""What the hooks call an object of each class."""


def used_of(names: tuple[str, ...], source: Path) -> Iterator[str]:
    """Yields the attributes that a module reads of variables with some names."""
    for node in ast.walk(ast.parse(source.read_text())):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value
        called = getattr(owner, "id", getattr(owner, "attr", None))
        if called in names:
            yield node.attr


def looked_for(owner: str) -> set[str]:
    needs = {need.partition("(")[0] for each in NEEDS.values() for need in each.get(owner, ())}
    return needs | {"__name__"}


@pytest.mark.parametrize("owner", CALLED)
def test_what_is_used_is_looked_for(owner: str) -> None:
    used = {
        (source.name, name)
        for source in SOURCES
        for name in used_of(CALLED[owner], source)
        if name not in looked_for(owner) and not name.startswith("_stepscope")
    }
    assert used == set()


def test_the_scan_sees_what_is_used() -> None:
    used = {name for source in SOURCES for name in used_of(CALLED["Scheduler"], source)}
    assert {"kv_holding_waiting", "max_num_active_reqs"} <= used

"""Runs to be made, one file a kind of fault. Each has `SCENARIOS`; `ALL` finds them by itself."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.provoking.scenario import Scenario


def read_all() -> tuple[Scenario, ...]:
    """Returns the scenarios of every file here, in the order of the files' names.

    Raises:
        ValueError: two scenarios have the same name.
    """
    names = sorted(module.name for module in iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    scenarios = tuple(scenario for module in modules for scenario in module.SCENARIOS)
    seen: set[str] = set()
    for scenario in scenarios:
        if scenario.name in seen:
            raise ValueError(f"two scenarios are called {scenario.name}: rename one")
        seen.add(scenario.name)
    return scenarios

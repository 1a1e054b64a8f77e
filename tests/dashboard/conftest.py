"""Closed logs for the dashboard's tests, made once; a browser a module, and a visit a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.source import ROOT_VARIABLE
from tests.dashboard import logs
from tests.dashboard.browsing import Visit, chromium
from tests.dashboard.serving import Served
from tests.diagnose import scrapes


@pytest.fixture(scope="session")
def storm_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logs.write_log(tmp_path_factory.mktemp("storm"), logs.storm().builder())


@pytest.fixture(scope="session")
def calm_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logs.write_log(tmp_path_factory.mktemp("calm"), logs.calm().builder())


@pytest.fixture(scope="session")
def interrupted_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logs.write_log(tmp_path_factory.mktemp("interrupted"), logs.dying_builder())


@pytest.fixture(scope="session")
def empty_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logs.write_log(tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="session")
def scraped_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logs.write_log(tmp_path_factory.mktemp("scraped"), scrapes.storm())


@pytest.fixture(scope="session")
def dense_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = logs.dense_builder(logs.storm(num_requests=40))
    return logs.write_dense_log(tmp_path_factory.mktemp("dense"), builder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser: Any, served: Served) -> Iterator[Visit]:
    """A page of what the module calls `served`."""
    opened = Visit(browser, served, "dark")
    yield opened
    opened.page.close()


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch):
    """Points the pages at a log."""

    def point(log: Path) -> None:
        monkeypatch.setenv(ROOT_VARIABLE, str(log))

    return point

"""Which logs an address may name: the one the dashboard was started with, and those below it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dashboard import source
from telemetry.errors import LogNotFound


@pytest.fixture
def root(tmp_path: Path, empty_log: Path) -> Path:
    shutil.copytree(empty_log, tmp_path / "root")
    shutil.copytree(empty_log, tmp_path / "root" / "demo")
    shutil.copytree(empty_log, tmp_path / "outside")
    (tmp_path / "root" / "no-log").mkdir()
    (tmp_path / "root" / "linked").symlink_to(tmp_path / "outside")
    return tmp_path / "root"


def test_without_a_name_it_is_the_log_that_was_started(root: Path) -> None:
    assert source.resolve(root, None) == root


def test_a_log_right_below_may_be_named(root: Path) -> None:
    assert source.resolve(root, "demo") == root / "demo"


@pytest.mark.parametrize(
    "name",
    ["..", "../outside", "/etc", "linked", "no-log", "absent", "", ".", "demo/../../outside"],
)
def test_no_other_path_can_be_opened(root: Path, name: str) -> None:
    with pytest.raises(LogNotFound, match="leave `log` out"):
        source.resolve(root, name)


def test_the_picker_lists_logs_below_and_nothing_else(root: Path) -> None:
    assert source.logs_below(root) == ["demo"]


def test_the_stamp_changes_with_the_files(root: Path) -> None:
    before = source.stamp_of(root)
    file = next(iter(root.glob("*.duckdb")))
    with file.open("ab") as opened:
        opened.write(b"\0")
    assert source.stamp_of(root) != before

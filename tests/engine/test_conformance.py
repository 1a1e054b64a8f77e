"""Our decisions equal the recorded ones, step by step, block ids included."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.request import Request
from engine.scheduler import new_tokens, running_scan
from tests.conformance import check, find_vectors, main, unsupported

DATA = Path(__file__).parents[1] / "data" / "vectors"
SHARED = Path(__file__).parents[3] / "shared" / "vectors"
VECTORS = dict(find_vectors([DATA]))
SUPPORTED = {name: v for name, v in VECTORS.items() if not unsupported(v)}


@pytest.mark.parametrize("name", SUPPORTED)
def test_decisions_equal_the_recorded_ones(name: str) -> None:
    assert check(name, SUPPORTED[name]) is None


def test_most_vectors_of_these_categories_are_supported() -> None:
    assert len(SUPPORTED) >= 100, sorted(VECTORS.keys() - SUPPORTED.keys())


def test_every_vector_that_is_supported_conforms(capsys: pytest.CaptureFixture[str]) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED.name}: the whole set of vectors is not here")
    assert main(["--supported", str(SHARED)]) == 0, capsys.readouterr().out


def test_a_vector_that_needs_more_fails_without_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DATA / "basic" / "single_request.json").read_text()
    (tmp_path / "vector.json").write_text(text.replace('"kind":"full"', '"kind":"mamba"'))
    assert main([str(tmp_path)]) == 1
    assert "needs KV groups of kind mamba" in capsys.readouterr().out


def _first_in_list(policy: str, running: list[Request]) -> Request:
    return running[0]


@pytest.mark.parametrize(
    ("module", "target", "broken"),
    [
        (running_scan, "choose_victim", _first_in_list),
        (new_tokens, "stop_after", lambda *_: None),
        (running_scan, "drafts_within", lambda request, num_tokens: []),
    ],
)
def test_a_broken_scheduler_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, target: str, broken: Any
) -> None:
    monkeypatch.setattr(module, target, broken)
    noticed = [name for name, vector in SUPPORTED.items() if _differs(name, vector)]
    assert noticed


def _differs(name: str, vector: dict[str, Any]) -> bool:
    try:
        return check(name, vector) is not None
    except (AssertionError, KeyError, ValueError):
        return True

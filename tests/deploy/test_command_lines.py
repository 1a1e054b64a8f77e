"""What the files in deploy/ run is what this version understands."""

from __future__ import annotations

import argparse

import pytest

from stepscope import build_parser
from tests.deploy.lines import command_lines

LINES = list(command_lines())


def parsed(words: list[str]) -> argparse.Namespace:
    return build_parser().parse_args(words)


@pytest.mark.parametrize("words", [w for _, w in LINES], ids=[place for place, _ in LINES])
def test_a_command_line_can_be_run(words: list[str]) -> None:
    assert parsed(words).command == words[0]


def test_every_kind_of_file_was_read() -> None:
    kinds = {place.split()[0] for place, _ in LINES}
    units = {"stepscope-collector.service", "stepscope-engine.service"}
    assert kinds == {*units, "Dockerfile", "compose", "kubernetes", "README"}


def test_a_collector_that_is_a_service_never_leaves() -> None:
    collectors = [parsed(words) for _, words in LINES if words[0] == "collect"]
    assert collectors
    assert {options.linger for options in collectors} == {float("inf")}


def test_an_engine_beside_a_service_starts_no_collector() -> None:
    engines = [parsed(words) for place, words in LINES if words[0] == "serve" if place != "README"]
    assert engines
    assert all(options.no_collector for options in engines)

"""The page on attaching a vLLM says what the program says, and can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import stepscope_vllm
from stepscope import build_parser
from telemetry.doctor.vllm_flags import FLAGS
from telemetry.sources.vllm.compatibility import TESTED_VERSIONS
from telemetry.sources.vllm.guard import MAX_ERRORS

PAGE = (Path(__file__).parents[1] / "docs" / "attach-vllm.md").read_text()
TYPED = re.findall(r"^ {7}(stepscope .*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", TYPED)
def test_a_command_can_be_typed(line: str) -> None:
    words = shlex.split(line)
    assert build_parser().parse_args(words[1:]).command == words[1]


def test_the_commands_were_found() -> None:
    assert {line.split()[1] for line in TYPED} == {"collect", "doctor"}


@pytest.mark.parametrize("flag", sorted(FLAGS[TESTED_VERSIONS[-1]]))
def test_every_flag_that_doctor_may_name_is_on_the_page(flag: str) -> None:
    assert f"`{flag}" in PAGE


@pytest.mark.parametrize("variable", stepscope_vllm.SWITCHES)
def test_both_variables_are_explained(variable: str) -> None:
    assert f"| `{variable}` |" in PAGE


def test_the_numbers_are_the_programs() -> None:
    assert f"tested against {', '.join(TESTED_VERSIONS)};" in PAGE
    assert MAX_ERRORS == 5
    assert "after five of them" in PAGE

"""Advice names only flags that the engine has, and values that are not set yet."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from diagnose.advice import advise
from diagnose.facts import EngineSettings
from diagnose.finding import Action
from diagnose.flags import FLAGS_FILE, applicable, has_flag
from engine.serve_arguments import add_serve_arguments

OURS = EngineSettings(engine=1, source="stepscope", version="0.1.0")
VLLM = EngineSettings(engine=1, source="vllm", version="0.32.0")
OTHER = EngineSettings(engine=1, source="vllm", version="0.40.0")


def action(flag: str = "--no-such-flag", old: object = 1, new: object = 2) -> Action:
    return advise("turn it", flag=flag, old=old, new=new, trade_off="none")


def test_a_flag_that_the_engine_has_is_left_alone() -> None:
    (kept,) = applicable(OURS, (action("--max-num-seqs"),))
    assert kept == action("--max-num-seqs")


def test_a_flag_that_it_lacks_is_taken_out_and_named() -> None:
    (changed,) = applicable(VLLM, (action(),))
    assert changed.flag is None
    assert changed.what == "turn it (vllm 0.32.0 has no --no-such-flag)"


def test_of_another_version_it_is_not_known() -> None:
    assert has_flag(OTHER, "--no-such-flag") is None
    (noted,) = applicable(OTHER, (action(),))
    assert noted.flag == "--no-such-flag"
    assert "not known" in noted.trade_off


def test_what_is_set_already_is_not_advised() -> None:
    assert applicable(OURS, (action("--max-num-seqs", 8, 8),)) == ()


def test_our_own_flags_are_those_of_serve() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_serve_arguments(parser)
    own = {name for each in parser._actions for name in each.option_strings if "--" in name}
    listed = json.loads(FLAGS_FILE.read_text(encoding="utf-8"))["stepscope"]["flags"]
    assert sorted(own) == listed, "write the flags of serve into diagnose/engine_flags.json"


def test_vllms_flags_are_those_that_it_told() -> None:
    path = Path(__file__).parents[3] / "shared" / "vllm" / "flags.json"
    if not path.exists():
        pytest.skip("needs ../shared/vllm/flags.json")
    told = json.loads(path.read_text(encoding="utf-8"))
    names = {flag for each in told["flags"] for flag in each["flags"] if flag.startswith("--")}
    listed = json.loads(FLAGS_FILE.read_text(encoding="utf-8"))["vllm"]
    assert listed == {"version": told["version"], "flags": sorted(names)}

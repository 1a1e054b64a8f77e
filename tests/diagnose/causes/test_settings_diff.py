"""What is set otherwise than at the last start."""

from __future__ import annotations

import json

from diagnose.causes.settings_diff import changed_settings
from diagnose.facts import EngineSettings


def start(engine: int, **told: object) -> EngineSettings:
    whole = {"cache": {"num_gpu_blocks": 64}, "scheduler": {"max_num_seqs": 8, "watermark": 0.0}}
    whole["scheduler"] |= told  # type: ignore[arg-type]
    return EngineSettings(engine=engine, max_num_seqs=8, settings=json.dumps(whole))


def test_every_setting_that_differs_is_told_with_both_values() -> None:
    changed = changed_settings(start(1), start(2, watermark=0.05, max_num_seqs=32))
    assert [str(each) for each in changed] == ["max_num_seqs 8 -> 32", "watermark 0.0 -> 0.05"]


def test_two_starts_under_the_same_settings_differ_in_nothing() -> None:
    assert changed_settings(start(1), start(2)) == ()


def test_a_setting_that_one_of_them_does_not_tell_is_unset() -> None:
    (changed,) = changed_settings(start(1), start(2, long_prefill_token_threshold=512))
    assert (changed.old, changed.new) == (None, 512)
    assert str(changed).startswith("long_prefill_token_threshold unset -> 512")


def test_the_size_of_the_pool_is_no_setting_of_this_kind() -> None:
    old = EngineSettings(engine=1, num_usable_blocks=100)
    assert changed_settings(old, EngineSettings(engine=2, num_usable_blocks=50)) == ()


def test_columns_do_where_the_whole_configuration_is_not_recorded() -> None:
    old = EngineSettings(engine=1, watermark=0.0, settings="not JSON")
    (changed,) = changed_settings(old, EngineSettings(engine=2, watermark=0.1))
    assert changed.name == "watermark"

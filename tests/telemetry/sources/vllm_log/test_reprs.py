"""What Python prints of a configuration is read without being evaluated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from telemetry.sources.vllm_log.reprs import settings_of, value_of


def test_values_are_what_they_look_like() -> None:
    assert settings_of("a=1, b=0.5, c=True, d=None, e='x, y', f=torch.bfloat16, g=tiny-llama") == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": None,
        "e": "x, y",
        "f": "torch.bfloat16",
        "g": "tiny-llama",
    }


def test_dicts_objects_and_lists_are_read_inside() -> None:
    text = "'k': KVTransferConfig(kv_connector='X', extra={}), 'n': ['a', 'b'], 'o': (1, 2)"
    assert settings_of(text) == {
        "k": {"kv_connector": "X", "extra": {}},
        "n": ["a", "b"],
        "o": [1, 2],
    }


def test_an_enum_is_its_name() -> None:
    assert settings_of("mode=<CompilationMode.NONE: 0>, x=1") == {
        "mode": "CompilationMode.NONE",
        "x": 1,
    }


def test_what_follows_the_end_of_the_object_is_no_setting() -> None:
    assert settings_of("a=1), use_cached_outputs=False, b=2") == {"a": 1}


def test_a_configuration_that_was_cut_off_gives_what_is_there() -> None:
    assert settings_of("model='m', config={'a': 1, 'b': [1, 2")["model"] == "m"


def test_depth_is_bounded() -> None:
    value_of("{'a': " * 5_000 + "}" * 5_000)


@given(st.text(alphabet="ab=:,'\"\\()[]{}<> 1.", max_size=80))
def test_no_text_is_too_strange(text: str) -> None:
    settings_of(text)
    value_of(text)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models, pre_tokenizers, processors

from engine.text.tokenizer import Tokenizer

WORDS = ["<s>", "</s>", "red", "green"]


def checkpoint(directory: Path, settings: dict[str, Any], *, adds_bos_itself: bool = False) -> Path:
    inner = HFTokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "red"))
    inner.add_special_tokens(WORDS[:2])
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    if adds_bos_itself:
        inner.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    inner.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def loaded(directory: Path, settings: dict[str, Any], **how: bool) -> Tokenizer:
    tokenizer = Tokenizer.load(checkpoint(directory, settings, **how))
    assert tokenizer is not None
    return tokenizer


@pytest.mark.parametrize("adds_bos_itself", [True, False])
def test_bos_comes_once_where_the_configuration_says_so(
    adds_bos_itself: bool, tmp_path: Path
) -> None:
    settings = {"bos_token": "<s>", "add_bos_token": True}
    tokenizer = loaded(tmp_path, settings, adds_bos_itself=adds_bos_itself)
    assert tokenizer.encode("red green") == [0, 2, 3]
    assert tokenizer.encode("<s> red") in ([0, 2], [0, 0, 2])
    assert tokenizer.encode_as_it_is("<s> red") == [0, 2]


@pytest.mark.parametrize("settings", [{"bos_token": "<s>"}, {"add_bos_token": True}])
def test_without_a_word_of_it_no_bos_is_added(settings: dict[str, Any], tmp_path: Path) -> None:
    assert loaded(tmp_path, settings).encode("red") == [2]


def test_special_tokens_are_texts_however_they_are_written(tmp_path: Path) -> None:
    settings = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"}
    assert loaded(tmp_path, settings).special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize(
    ("stored", "template"),
    [
        ("plain", "plain"),
        ([{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}], "b"),
        (None, None),
    ],
)
def test_the_chat_template_is_the_configurations(
    stored: Any, template: str | None, tmp_path: Path
) -> None:
    assert loaded(tmp_path, {"chat_template": stored}).chat_template == template


def test_a_file_of_its_own_goes_before_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert loaded(tmp_path, {"chat_template": "other"}).chat_template == "from the file"


def test_a_checkpoint_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert Tokenizer.load(tmp_path) is None

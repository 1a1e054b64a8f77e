"""Files that mean harm: each is refused, at once and with a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.user_rules.document import MAX_FILE_BYTES, UserRuleError
from diagnose.user_rules.loading import MAX_FILES, load_rules
from diagnose.user_rules.reading import read_rule
from tests.diagnose.user_rules.files import changed, example, put

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [*{before}, *{before}, *{before}, *{before}, *{before}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "bomb of aliases": (LAUGHS, r":1: anchors \(&\) and aliases"),
    "merge key": ("a: {b: 1}\n<<: *x\n", r":2: anchors"),
    "python object": ("!!python/object/apply:os.system ['true']\n", "is not read"),
    "tag of its own": ("a: !secret b\n", ":1: the tag '!secret'"),
    "deep nesting": ("a: " + "[" * 5000 + "]" * 5000, ":1: is nested more than 12 deep"),
    "deep blocks": ("\n".join(" " * n + "a:" for n in range(200)), "nested more than 12 deep"),
    "huge": ("# " + "x" * MAX_FILE_BYTES, "is larger than 64 KiB"),
    "two documents": ("a: 1\n---\nb: 2\n", "a second document"),
    "no UTF-8": (b"a: 1\nb: \xff\xfe\n", ":2: is no UTF-8"),
    "zero bytes": (b"\0" * 100, "no YAML"),
    "empty": ("", "a rule is a mapping"),
    "a list": ("- 1\n", "a rule is a mapping"),
    "no YAML": ("a: [1, 2\nb: }", "no YAML"),
    "tabs": ("a:\n\tb: 1", "no YAML"),
    "a list as a name": ("? [a, b]\n: 1\n", "a name has to be a text"),
    "a number as a name": ("1: 2\n", "a name has to be a text"),
    "a binary value": ("id: !!binary aGVsbG8=\n", "is not read"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(20)
def test_a_hostile_file_is_refused(name: str, tmp_path: Path) -> None:
    text, message = HOSTILE[name]
    path = put(tmp_path, text)
    with pytest.raises(UserRuleError, match=message) as error:
        read_rule(path)
    assert str(error.value).startswith(str(path))
    assert str(error.value).isprintable()


def test_a_title_that_turns_the_text_around_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, changed(("title: more", 'title: "\\u202Eevil" #')))
    with pytest.raises(UserRuleError, match="cannot be printed"):
        read_rule(path)


def test_the_same_id_in_two_files_is_refused(tmp_path: Path) -> None:
    put(tmp_path, example(), "a.yaml")
    put(tmp_path, example(), "b.yml")
    with pytest.raises(
        UserRuleError, match=r"b\.yml: id: long-prompt-quota is the id of .*a\.yaml"
    ):
        load_rules(tmp_path)


def test_a_folder_that_looks_like_a_rule_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").mkdir()
    with pytest.raises(UserRuleError, match="is no plain file"):
        load_rules(tmp_path)


def test_too_many_files_are_refused_unread(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        put(tmp_path, "", f"{number}.yaml")
    with pytest.raises(UserRuleError, match="201 rules and 200 is the most"):
        load_rules(tmp_path)


def test_a_rule_that_is_silenced_by_nobody_known_is_refused(tmp_path: Path) -> None:
    put(tmp_path, changed(("[kv-block-leak]", "[kv-block-lake]")))
    with pytest.raises(UserRuleError, match="'kv-block-lake' is no other rule"):
        load_rules(tmp_path)

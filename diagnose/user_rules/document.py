"""Reads a YAML file that a stranger may have written, and remembers where everything stands.

Plain YAML alone: one document of mappings, lists, texts, numbers and booleans. Anchors and aliases
(with which ten lines grow to gigabytes), tags and keys that come twice are refused, before anything
is built of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.constructor import SafeConstructor

from telemetry.errors import StepscopeError
from telemetry.rendering import printable

MAX_FILE_BYTES = 64 << 10
MAX_DEPTH = 12
MAX_TEXT_CHARS = 16 << 10
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null")}
_SHOWN_CHARS = 60


class UserRuleError(StepscopeError):
    """A file of rules is not one; the message begins with the file and the line."""


def fail(path: Path, line: int | None, message: str) -> NoReturn:
    """Raises that something in a file is wrong.

    Raises:
        UserRuleError: always.
    """
    place = f"{path}" if line is None else f"{path}:{line}"
    raise UserRuleError(f"{place}: {message}")


def shown(value: object) -> str:
    """Returns a value as a message quotes it."""
    text = printable(str(value))
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}...")


def read_document(path: Path) -> Fields:
    """Returns the mapping that a file holds.

    Raises:
        UserRuleError: it is too large, no UTF-8, no YAML, or not plain.
    """
    text = _text_of(path)
    try:
        _check_plain(path, text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        fail(path, line, f"no YAML: {printable(error.problem or error.context or 'unreadable')}")
    except yaml.YAMLError as error:
        fail(path, None, f"no YAML: {printable(str(error))}")
    if not isinstance(node, yaml.MappingNode):
        fail(path, 1, "a rule is a mapping of names to values: begin with `id: ...`")
    return Fields(path, node)


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        fail(path, None, f"cannot be read: {error.strerror or error}")
    if len(data) > MAX_FILE_BYTES:
        fail(path, None, f"is larger than {MAX_FILE_BYTES >> 10} KiB: one rule a file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        fail(path, data[: error.start].count(b"\n") + 1, "is no UTF-8: save it as UTF-8")


def _check_plain(path: Path, text: str) -> None:
    """Looks at the events that YAML is parsed to; nothing is built yet."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            fail(path, line, "anchors (&) and aliases (*) are not read: write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            fail(path, line, f"is nested more than {MAX_DEPTH} deep: a rule needs half of that")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                fail(path, line, "holds a second document (---): one rule a file")
        if getattr(event, "tag", None):
            fail(path, line, f"the tag {shown(event.tag)} is not read: write a plain value")


class Fields:
    """A mapping of a file. What was not asked for when it is `done` is refused."""

    def __init__(self, path: Path, node: yaml.MappingNode) -> None:
        self.path = path
        self.line: int = node.start_mark.line + 1
        self._nodes: dict[str, yaml.Node] = {}
        self._lines: dict[str, int] = {}
        self._asked: set[str] = set()
        for key, value in node.value:
            name, line = self._name(key), key.start_mark.line + 1
            if name in self._nodes:
                fail(path, line, f"{shown(name)} stands here twice: remove one")
            self._nodes[name], self._lines[name] = value, line

    def _name(self, key: yaml.Node) -> str:
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            fail(self.path, key.start_mark.line + 1, "a name has to be a text: put it in quotes")
        return str(key.value)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    @property
    def names(self) -> tuple[str, ...]:
        """The names in it, in order."""
        return tuple(self._nodes)

    def line_of(self, name: str) -> int:
        """Returns the line of a name; that of the mapping where it is not in it."""
        return self._lines.get(name, self.line)

    def fail(self, name: str, message: str) -> NoReturn:
        """Raises that the value of a name is wrong."""
        fail(self.path, self.line_of(name), f"{name}: {message}")

    def done(self, *, known: str = "") -> None:
        """Raises that a name is not known, where one was not asked for."""
        for name in self._nodes:
            if name not in self._asked:
                there = ", ".join(sorted(self._asked))
                fail(self.path, self.line_of(name), f"{shown(name)} is not known: {known or there}")

    def value(self, name: str) -> Any:
        """Returns a plain value; None where it is absent or empty."""
        self._asked.add(name)
        node = self._nodes.get(name)
        return None if node is None else self._scalar(node, name)

    def text(self, name: str, *, most: int = MAX_TEXT_CHARS) -> str:
        """Returns a text that has to be there."""
        if (text := self.maybe_text(name, most=most)) is None:
            self.fail(name, "is missing: write a text")
        return text

    def maybe_text(self, name: str, *, most: int = MAX_TEXT_CHARS) -> str | None:
        """Returns a text; None where there is none. A number is taken as it is written."""
        value = self.value(name)
        if value is None:
            return None
        text = str(value).strip() if isinstance(value, str) else str(self._nodes[name].value)
        if not text:
            self.fail(name, "is empty: write a text")
        if len(text) > most:
            self.fail(name, f"has {len(text):,} characters and {most:,} is the most: shorten it")
        return text

    def integer(self, name: str, *, least: int) -> int:
        """Returns a whole number that has to be there."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            self.fail(name, f"is {shown(value)}: write a whole number from {least} to 2^31")
        return value

    def number(self, name: str) -> int | float:
        """Returns a number that has to be there."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(name, f"is {shown(value)}: write a number")
        if not math.isfinite(value) or abs(value) >= 2**63:
            self.fail(name, f"is {shown(value)}: write a finite number below 2^63")
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """Returns one of several words."""
        value = self.value(name)
        if value is None and default is not None:
            return default
        if value not in choices:
            self.fail(name, f"is {shown(value)}: write one of {', '.join(choices)}")
        return str(value)

    def mapping(self, name: str) -> Fields:
        """Returns a mapping that has to be there."""
        self._asked.add(name)
        node = self._nodes.get(name)
        if not isinstance(node, yaml.MappingNode):
            self.fail(name, "is no mapping: write names and values below it")
        return Fields(self.path, node)

    def maybe_mapping(self, name: str) -> Fields | None:
        """Returns a mapping; None where there is none."""
        self._asked.add(name)
        return self.mapping(name) if name in self._nodes else None

    def mappings(self, name: str) -> list[Fields]:
        """Returns a list of mappings; a single one counts as a list."""
        self._asked.add(name)
        node = self._nodes.get(name)
        if isinstance(node, yaml.MappingNode):
            return [Fields(self.path, node)]
        nodes = self._list(name)
        for each in nodes:
            if not isinstance(each, yaml.MappingNode):
                line = each.start_mark.line + 1
                fail(self.path, line, f"{name}: a mapping is expected here: write `- name: value`")
        return [Fields(self.path, each) for each in nodes]

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of texts; a single one counts as a list."""
        self._asked.add(name)
        node = self._nodes.get(name)
        nodes = [node] if isinstance(node, yaml.ScalarNode) else self._list(name)
        values = [self._scalar(each, name) for each in nodes]
        if not all(isinstance(value, str) for value in values):
            self.fail(name, f"is {shown(values)}: write texts")
        return tuple(values)

    def is_text(self, name: str) -> bool:
        """Whether a plain value stands there, and no list or mapping."""
        return isinstance(self._nodes.get(name), yaml.ScalarNode)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Returns a list of rows: mappings of names to plain values."""
        return [dict(fields._plain()) for fields in self.mappings(name)]

    def _plain(self) -> Iterator[tuple[str, Any]]:
        for name in self._nodes:
            yield name, self.value(name)

    def _list(self, name: str) -> list[yaml.Node]:
        node = self._nodes.get(name)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.fail(name, "is no list: write one `- ...` a line")
        return list(node.value)

    def _scalar(self, node: yaml.Node, name: str) -> Any:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.ScalarNode):
            fail(self.path, line, f"{name}: a plain value is expected here, not a list or mapping")
        if node.tag not in _PLAIN_TAGS:
            kind = node.tag.rpartition(":")[2]
            fail(self.path, line, f"{name}: {shown(node.value)} reads as a {kind}: quote it")
        try:
            return SafeConstructor().construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            why = printable(str(error))
            fail(self.path, line, f"{name}: {shown(node.value)} is no value: {why}")

"""YAML as a person would have written it: keys in their order, long texts as blocks."""

from __future__ import annotations

from typing import Any

import yaml


class Block(str):
    """A text of several lines, written as a literal block."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # the package has no types
    """Lists stand further in than their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


def _block(dumper: yaml.SafeDumper, text: Block) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(Block, _block)


def yaml_text(document: Any) -> str:
    """Returns a document as YAML."""
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True
    )
    return text

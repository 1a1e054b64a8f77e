"""An adapter's name and place as `--lora-modules` gives them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from engine.lora.adapter_error import AdapterError

NAME = re.compile(r"[\w.:@/+=-]{1,128}", re.ASCII)
"""Names go into the record, metrics and URLs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterModule:
    """An adapter to serve: the name that requests choose it by, and its directory."""

    name: str
    path: Path
    base_model_name: str | None = None

    def __post_init__(self) -> None:
        """Checks the name.

        Raises:
            AdapterError: it cannot be one.
        """
        if not NAME.fullmatch(self.name):
            raise AdapterError(
                f"adapter name {self.name[:140]!r} must have 1 to 128 characters out of letters, "
                "digits and _.:@/+=-"
            )


def parse_module(text: str) -> AdapterModule:
    """Returns the adapter of `NAME=PATH`, or of a JSON object as vLLM takes it.

    Raises:
        AdapterError: it is neither.
    """
    if text.lstrip().startswith("{"):
        return _from_json(text)
    name, _, path = text.partition("=")
    if not name or not path:
        raise AdapterError(
            f"--lora-modules {text!r} is neither NAME=PATH nor "
            '{"name": "NAME", "path": "PATH", "base_model_name": "..."}'
        )
    return AdapterModule(name=name, path=Path(path))


def _from_json(text: str) -> AdapterModule:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise AdapterError(f"--lora-modules {text!r} is not JSON: {error}") from None
    known = {"name", "path", "base_model_name"}
    are_texts = all(isinstance(value, str) for value in fields.values() if value is not None)
    if not (fields.keys() <= known and are_texts and fields.get("name") and fields.get("path")):
        raise AdapterError(
            f"--lora-modules {text!r} needs a name and a path, and may have a base_model_name, all "
            "of them texts"
        )
    base = fields.get("base_model_name")
    return AdapterModule(name=fields["name"], path=Path(fields["path"]), base_model_name=base)

"""What an output can be asked to look like, and what is seen to be wrong without compiling it."""

from __future__ import annotations

import json
from typing import Literal

from engine.structured_output.json_schema import complaint_about_schema

StructuredOutputKind = Literal["json", "json_object", "regex", "choice", "grammar"]


def complaint_about(kind: StructuredOutputKind, spec: str) -> str | None:
    """Returns what is wrong with a wish; None where only compiling it can tell."""
    match kind:
        case "json":
            return _about_schema(spec)
        case "choice":
            return _about_choices(spec)
        case "regex" | "grammar":
            return None if spec else f"the {kind} is empty: say what the text looks like"
        case "json_object":
            return None if not spec else "json_object is any JSON object: leave its spec empty"


def _about_schema(spec: str) -> str | None:
    try:
        schema = json.loads(spec)
    except (ValueError, RecursionError) as error:
        return f"the schema is not JSON: {error}"
    return complaint_about_schema(schema)


def _about_choices(spec: str) -> str | None:
    try:
        choices = json.loads(spec)
    except ValueError as error:
        return f"the choices are not JSON: {error}"
    if isinstance(choices, list) and choices and all(isinstance(each, str) for each in choices):
        return None
    return "the choices must be a list of at least one text"

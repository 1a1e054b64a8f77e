"""Reads what an output has to look like: `response_format`, and vLLM's `structured_outputs`.

Whatever can be seen to be wrong without compiling it is refused here, and the field named.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from engine.sampling import StructuredOutputsParams
from engine.server.api_error import bad_request
from engine.structured_output.wishes import StructuredOutputKind

KINDS: tuple[StructuredOutputKind, ...] = get_args(StructuredOutputKind)

FORMATS = ("text", "json_object", "json_schema")

JSON_SCHEMA_FIELDS = {"name", "description", "schema", "strict"}

NEUTRAL_OPTIONS = ("disable_any_whitespace", "disable_additional_properties")
"""Fields of vLLM's `structured_outputs` that are accepted where they are false."""

MAX_SPEC_BYTES = 1 << 20

ANY_OBJECT = StructuredOutputsParams(kind="json_object")


def read_structured_outputs(
    response_format: Any, structured_outputs: Any
) -> StructuredOutputsParams | None:
    """Returns what an output has to look like; None where it may be any text.

    Raises:
        ApiError: 400, with the field that is wrong and what would be right.
    """
    by_format = None if response_format is None else _read_format(response_format)
    if structured_outputs is None:
        return by_format
    if by_format is not None:
        raise bad_request(
            "response_format and structured_outputs both say what the output looks like: "
            "leave one of them out",
            "structured_outputs",
        )
    return _read_structured(structured_outputs)


def _read_format(given: Any) -> StructuredOutputsParams | None:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind not in FORMATS:
        raise bad_request(
            f"response_format.type is {kind!r}: it must be one of {', '.join(FORMATS)}",
            "response_format.type",
        )
    _refuse_unknown(given, {"type", "json_schema"} if kind == "json_schema" else {"type"})
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    place = "response_format.json_schema"
    described = given.get("json_schema")
    if not isinstance(described, dict) or described.get("schema") is None:
        raise bad_request(f"{place} must be an object with a schema in it", place)
    _refuse_unknown(described, JSON_SCHEMA_FIELDS, f"{place}.")
    return _checked("json", _as_text(described["schema"], f"{place}.schema"), f"{place}.schema")


def _refuse_unknown(
    given: dict[str, Any], known: set[str], place: str = "response_format."
) -> None:
    unknown = sorted(name for name in given.keys() - known if given[name] is not None)
    if unknown:
        name = place + unknown[0]
        raise bad_request(f"{name} is not a field of this API: leave it out", name)


def _read_structured(given: Any) -> StructuredOutputsParams:
    """Returns what vLLM's field asks for, which has to be exactly one thing."""
    place = "structured_outputs"
    if not isinstance(given, dict):
        raise bad_request(f"{place} must be an object with one of {', '.join(KINDS)}", place)
    said = {name: value for name, value in given.items() if value is not None}
    for name in NEUTRAL_OPTIONS:
        if said.pop(name, False) is not False:
            raise bad_request(f"{place}.{name} is not supported: leave it out", f"{place}.{name}")
    unknown = sorted(said.keys() - set(KINDS))
    if unknown:
        name = f"{place}.{unknown[0]}"
        raise bad_request(f"{name} is not supported: use one of {', '.join(KINDS)}", name)
    if len(said) != 1:
        raise bad_request(
            f"{place} has {len(said)} of {', '.join(KINDS)}: it must have exactly one", place
        )
    [(kind, value)] = said.items()
    return _read_kind(kind, value, f"{place}.{kind}")


def _read_kind(kind: str, value: Any, place: str) -> StructuredOutputsParams:
    match kind:
        case "json":
            return _checked("json", _as_text(value, place), place)
        case "json_object":
            if value is not True:
                raise bad_request(f"{place} must be true, or be left out", place)
            return ANY_OBJECT
        case "choice":
            return _checked("choice", json.dumps(value), place)
        case "regex":
            return _checked("regex", _text(value, place), place)
        case _:
            return _checked("grammar", _text(value, place), place)


def _as_text(schema: Any, place: str) -> str:
    """Returns a schema's JSON, which it may have come as."""
    try:
        return schema if isinstance(schema, str) else json.dumps(schema)
    except RecursionError:
        raise bad_request(f"{place} is nested too deeply: make it flatter", place) from None


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise bad_request(f"{place} must be a text", place)
    return value


def _checked(kind: StructuredOutputKind, spec: str, place: str) -> StructuredOutputsParams:
    num_bytes = len(spec.encode())
    if num_bytes > MAX_SPEC_BYTES:
        raise bad_request(
            f"{place} has {num_bytes:,} bytes but may have {MAX_SPEC_BYTES:,}: make it smaller",
            place,
        )
    try:
        return StructuredOutputsParams(kind=kind, spec=spec)
    except ValueError as error:
        raise bad_request(f"{place}: {error}", place) from None

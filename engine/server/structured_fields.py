"""Reads what an output has to look like: `response_format`, and vLLM's `structured_outputs`.

Whatever can be seen to be wrong without compiling it is refused here, and the field named.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from engine.sampling import StructuredOutputKind, StructuredOutputsParams
from engine.server.api_error import bad_request
from engine.structured_output.json_schema import complaint_about_schema

KINDS: tuple[StructuredOutputKind, ...] = get_args(StructuredOutputKind)

FORMATS = ("text", "json_object", "json_schema")

JSON_SCHEMA_FIELDS = {"name", "description", "schema", "strict"}

NEUTRAL_OPTIONS = ("disable_any_whitespace", "disable_additional_properties")
"""Fields of vLLM's `structured_outputs` that are accepted where they are false."""

MAX_SPEC_BYTES = 1 << 20

ANY_OBJECT = StructuredOutputsParams(kind="json_object", spec="")


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
    return _json(described["schema"], f"{place}.schema")


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
            return _json(_parsed(value, place), place)
        case "json_object":
            if value is not True:
                raise bad_request(f"{place} must be true, or be left out", place)
            return ANY_OBJECT
        case "choice":
            return _limited("choice", _choices(value, place), place)
        case "regex":
            return _limited("regex", _text(value, place), place)
        case _:
            return _limited("grammar", _text(value, place), place)


def _parsed(value: Any, place: str) -> Any:
    """Returns a schema that may have come as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"{place} is not JSON: {error}", place) from None


def _json(schema: Any, place: str) -> StructuredOutputsParams:
    complaint = complaint_about_schema(schema)
    if complaint is not None:
        raise bad_request(f"{place}: {complaint}", place)
    return _limited("json", json.dumps(schema), place)


def _choices(value: Any, place: str) -> str:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise bad_request(f"{place} must be a list of at least one text", place)
    return json.dumps(value)


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value:
        raise bad_request(f"{place} must be a text that is not empty", place)
    return value


def _limited(kind: StructuredOutputKind, spec: str, place: str) -> StructuredOutputsParams:
    num_bytes = len(spec.encode())
    if num_bytes > MAX_SPEC_BYTES:
        raise bad_request(
            f"{place} has {num_bytes:,} bytes but may have {MAX_SPEC_BYTES:,}: make it smaller",
            place,
        )
    return StructuredOutputsParams(kind=kind, spec=spec)

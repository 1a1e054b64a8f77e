"""Which JSON schemas an output can be kept to: asked before a request is queued.

xgrammar passes over what it cannot enforce, so an output could break its schema. Such a schema is
refused instead, with the place and what to do. What is left to the compiler is whether references
lead somewhere and whether limits contradict each other.

Not enforced all the same: of the branches of `oneOf` that exactly one fits, where they overlap.

Source: each entry was tried on xgrammar 0.2.8 with random walks through compiled grammars; vLLM's
`backend_xgrammar.py` has a list of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_NESTING = 64
"""Levels of objects and arrays, as vLLM limits them: the time to compile grows steeply."""

TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}

FORMATS = frozenset(
    (
        *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid"),
        *("uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
    )
)

NOT_ENFORCED = frozenset(
    (
        *("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"),
        *("contains", "minContains", "maxContains", "additionalItems"),
        *("$dynamicRef", "$recursiveRef"),
    )
)

ALONE = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
"""Each of these settles a value; what else a schema says about it would be passed over."""

BESIDE = frozenset(
    (
        *("title", "description", "default", "example", "examples", "deprecated", "discriminator"),
        *("$schema", "$id", "$comment", "$defs", "definitions", "readOnly", "writeOnly"),
    )
)
"""What may stand beside those: it constrains nothing."""

NEEDS_TYPE = frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "format"),
    )
)

_SCHEMA = ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems")
_LIST_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")

_PIECE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]+)\}|(.))"
    r"|\[(?:\\.|[^\]\\])*\]|(.)",
    re.DOTALL,
)
"""Of a pattern: an escape (a number in three forms, or a letter), a class, or a character."""

_ESCAPED_IN_JSON = frozenset('"\\' + "".join(map(chr, range(32))))
_ESCAPES_FOR_THEM = frozenset("nrtfv0c")


def complaint_about_schema(schema: Any) -> str | None:
    """Returns what keeps an output from being kept to a schema, and where; None if nothing does."""
    if _nesting(schema) > MAX_NESTING:
        return f"the schema is nested more than {MAX_NESTING} levels deep: make it flatter"
    return next(_complaints(schema, ""), None)


def _nesting(value: Any) -> int:
    """Returns how deep objects and arrays are nested, counted as far as the limit."""
    level, depth = [value], 0
    while level and depth <= MAX_NESTING:
        level = [child for each in level for child in _children(each)]
        depth += bool(level)
    return depth


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _complaints(schema: Any, place: str) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{place or 'the schema'} is a {type(schema).__name__}: a schema is an object"
        return
    for complaint in (
        *(_of_shape(schema), _of_keywords(schema), _of_combinations(schema)),
        *(_of_values(schema), _of_text(schema), _of_object(schema)),
    ):
        for said in complaint:
            yield f"{place or 'the schema'}: {said}"
    for name, child in _subschemas(schema):
        yield from _complaints(child, f"{place}.{name}" if place else name)


def _of_shape(schema: dict[str, Any]) -> Iterator[str]:
    """Complains about keywords whose values are of the wrong kind."""
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if not isinstance(name, str) or name not in TYPES:
            yield f"type {name!r} is none of {', '.join(TYPES)}"
    for keyword in _LIST_OF_SCHEMAS:
        if not isinstance(schema.get(keyword, []), list):
            yield f"{keyword} must be a list of schemas"
    for keyword in _NAMED_SCHEMAS:
        if not isinstance(schema.get(keyword, {}), dict):
            yield f"{keyword} must be an object of schemas"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield "required must be a list of property names"


def _of_keywords(schema: dict[str, Any]) -> Iterator[str]:
    for keyword in sorted(NOT_ENFORCED & schema.keys()):
        yield f"{keyword} cannot be enforced: leave it out"
    if schema.get("uniqueItems"):
        yield "uniqueItems cannot be enforced: leave it out"
    if "multipleOf" in schema and "number" in _types(schema):
        yield "multipleOf can be enforced for integers only: leave it out"
    untyped = sorted(NEEDS_TYPE & schema.keys()) if "type" not in schema else []
    if untyped:
        yield f"{untyped[0]} is enforced only beside a type: add one"


def _of_combinations(schema: dict[str, Any]) -> Iterator[str]:
    found = [keyword for keyword in ALONE if keyword in schema]
    if not found:
        return
    others = schema.keys() - BESIDE - {found[0]}
    if found[0] in ("const", "enum"):
        others -= {"type"}
    if others:
        yield f"{min(others)} is not enforced beside {found[0]}: leave one of them out"
    if len(schema.get("allOf", ())) > 1:
        yield "allOf with more than one schema cannot be enforced: make one of them"
    ref = schema.get("$ref", "#")
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        yield f"$ref is {ref!r}: only references into the schema itself (#/...) can be followed"


def _of_values(schema: dict[str, Any]) -> Iterator[str]:
    """Complains about fixed values that their own type does not allow."""
    types = _types(schema)
    values = list(schema["enum"]) if isinstance(schema.get("enum"), list) else []
    values += [schema["const"]] if "const" in schema else []
    for value in values if types else ():
        if not any(_is_of(value, name) for name in types):
            yield f"the value {value!r} is not of type {' or '.join(sorted(types))}"


def _of_text(schema: dict[str, Any]) -> Iterator[str]:
    pattern, format_ = schema.get("pattern"), schema.get("format")
    has_length = "minLength" in schema or "maxLength" in schema
    if has_length and (pattern is not None or format_ is not None):
        yield "minLength and maxLength are not enforced beside pattern or format: put them into it"
    if format_ is not None and format_ not in FORMATS and "string" in _types(schema):
        yield f"format {format_!r} cannot be enforced: use a pattern, or leave it out"
    if isinstance(pattern, str) and _has_escaped_literal(pattern):
        yield (
            f"pattern {pattern!r} has a character that JSON escapes (a quote, a backslash or a "
            "control character) outside brackets: put it into brackets, or leave it out"
        )


def _of_object(schema: dict[str, Any]) -> Iterator[str]:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = schema.get("required", [])
    missing = [name for name in required if name not in known] if isinstance(required, list) else []
    if missing:
        yield f"required names {missing[0]!r}, which is not in properties: add it there"
    others_allowed = schema.get("additionalProperties", not known) is not False
    if schema.get("minProperties") and (others_allowed or "patternProperties" in schema):
        yield "minProperties is enforced only for properties that are listed: list them"
    if "propertyNames" in schema and schema.keys() & {"properties", "patternProperties"}:
        yield "propertyNames is not enforced beside properties or patternProperties"
    if "patternProperties" in schema and (known or len(schema["patternProperties"]) > 1):
        yield "patternProperties is enforced only alone, and with a single pattern"


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in _SCHEMA:
        if keyword in schema:
            yield keyword, schema[keyword]
    if "propertyNames" in schema:
        yield "propertyNames", {"type": "string", **_as_dict(schema["propertyNames"])}
    for keyword in _LIST_OF_SCHEMAS:
        if isinstance(schema.get(keyword), list):
            yield from ((f"{keyword}[{i}]", child) for i, child in enumerate(schema[keyword]))
    for keyword in _NAMED_SCHEMAS:
        for name, child in _as_dict(schema.get(keyword)).items():
            yield f"{keyword}.{name}", child


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _types(schema: dict[str, Any]) -> frozenset[str]:
    types = schema.get("type", [])
    named = types if isinstance(types, list) else [types]
    return frozenset(name for name in named if isinstance(name, str) and name in TYPES)


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def _has_escaped_literal(pattern: str) -> bool:
    """Whether a pattern asks for a character, by itself, that a JSON string has to escape."""
    for *numbers, letter, plain in _PIECE.findall(pattern):
        code = "".join(numbers)
        if code and int(code, 16) < 128 and chr(int(code, 16)) in _ESCAPED_IN_JSON:
            return True
        if letter in _ESCAPES_FOR_THEM or letter in _ESCAPED_IN_JSON or plain in _ESCAPED_IN_JSON:
            return True
    return False

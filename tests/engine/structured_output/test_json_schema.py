"""Which JSON schemas are taken, and that xgrammar keeps to those that are."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest
from pydantic import BaseModel

from engine.structured_output.grammar import RequestGrammar
from engine.structured_output.json_schema import MAX_NESTING, complaint_about_schema
from tests.engine.structured_output.builders import BOS, EOS, VOCAB_SIZE, token_id, wanted
from tests.engine.structured_output.conftest import Small


class Leaf(BaseModel):
    name: str
    weight: float | None = None


class Tree(BaseModel):
    """What pydantic writes for nested models, defaults, unions and descriptions."""

    leaves: list[Leaf]
    either: int | str | None = "none"
    root: Leaf


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"type": "array", "items": schema}
    return schema


TAKEN: tuple[Any, ...] = (
    *(True, {}, {"type": "object"}, {"enum": [1, "a", None]}, {"const": {"a": [1]}}),
    Tree.model_json_schema(),
    {"type": ["string", "null"], "maxLength": 3},
    {"type": "string", "pattern": r'^[^"\\\n]{1,3}\d\u0041$'},
    {"type": "string", "enum": ["a"], "description": "either", "default": "a"},
    {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer", "multipleOf": 5}}},
    {"type": "string", "format": "date-time"},
    {"type": "string", "x-ours": 1, "uniqueItems": False},
    nested(MAX_NESTING),
)


@pytest.mark.parametrize("schema", TAKEN)
def test_it_is_taken(schema: Any) -> None:
    assert complaint_about_schema(schema) is None


KEPT: tuple[dict[str, Any], ...] = (
    *(schema for schema in TAKEN if isinstance(schema, dict)),
    {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
    {"type": "object", "propertyNames": {"pattern": "^a+$"}},
    {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "maxProperties": 1},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": False, "minItems": 1},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
    {"type": "string", "minLength": 2, "maxLength": 4},
    *({"type": "string", "pattern": each} for each in ("b{2,3}", "^a|b$", "^.{3}$", r"^\s[^a]$")),
    {"type": "integer", "minimum": -5, "exclusiveMaximum": 12},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1.25},
    {"type": ["integer", "string"], "minimum": 5, "maxLength": 2},
    {"properties": {'a"b\n': {"const": 'x"'}}, "required": ['a"b\n'], "type": "object"},
    {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#"}}}},
)


@pytest.mark.parametrize("schema", KEPT)
def test_whatever_its_grammar_allows_keeps_to_it(schema: dict[str, Any], small: Small) -> None:
    compiled = small.compiler.compile(wanted("json", schema))
    walks = [random_walk(small, compiled, random.Random(seed)) for seed in range(15)]
    assert any(text is not None for text in walks)
    for text in walks:
        if text is not None:
            jsonschema.validate(json.loads(text), schema)


def random_walk(small: Small, compiled: Any, rng: random.Random) -> str | None:
    """Returns a text of ASCII that a grammar allows; None where it does not come to an end.

    What closes something is preferred, and the end is taken half of the time.
    """
    grammar, eos = RequestGrammar("walk"), token_id(EOS)
    texts = [small.tokenizer.decode([token]) for token in range(token_id(BOS))]
    grammar.begin(compiled)
    words = np.zeros((1, -(-VOCAB_SIZE // 32)), np.int32)
    tokens: list[int] = []
    for _ in range(200):
        grammar.fill(words, 0, (), words[0])
        bits = np.unpackbits(words[0].view(np.uint8), bitorder="little")
        allowed = bits[:VOCAB_SIZE].nonzero()[0].tolist()
        if eos in allowed and (len(allowed) == 1 or rng.random() < 0.5):
            return small.tokenizer.decode(tokens)
        plain = [token for token in allowed if token != eos and texts[token].isascii()]
        closing = [token for token in plain if texts[token] in ('"', "}", "]")]
        choices = closing if closing and rng.random() < 0.4 else plain
        if not choices:
            return None
        tokens.append(rng.choice(choices))
        assert grammar.accept(tokens[-1:])
    return None


REFUSED: tuple[tuple[Any, str], ...] = (
    ("text", "the schema is a str"),
    ({"type": "text"}, "the schema: type 'text' is none of string"),
    ({"type": [["string"]]}, "the schema: type ['string'] is none of"),
    ({"anyOf": {}}, "the schema: anyOf must be a list"),
    ({"properties": []}, "the schema: properties must be an object"),
    ({"required": "a"}, "the schema: required must be a list"),
    ({"properties": {"a": {"items": {"type": "x"}}}}, "properties.a.items: type 'x'"),
    ({"anyOf": [{}, 7]}, "anyOf[1] is a int"),
    ({"not": {"type": "string"}}, "the schema: not cannot be enforced"),
    ({"type": "array", "uniqueItems": True}, "the schema: uniqueItems"),
    ({"type": "number", "multipleOf": 0.1}, "the schema: multipleOf"),
    ({"minimum": 3}, "the schema: minimum is enforced only beside a type"),
    ({"$ref": "#/$defs/a", "type": "string"}, "the schema: type is not enforced beside $ref"),
    ({"type": "object", "oneOf": [{}]}, "the schema: type is not enforced beside oneOf"),
    ({"allOf": [{}, {}]}, "the schema: allOf with more than one"),
    ({"$ref": "other.json"}, "the schema: $ref is 'other.json'"),
    ({"$ref": 7}, "the schema: $ref is 7"),
    ({"type": "string", "enum": ["a", 1]}, "the schema: the value 1 is not of type string"),
    ({"type": "integer", "const": True}, "the schema: the value True"),
    ({"type": "string", "pattern": "a", "maxLength": 3}, "the schema: minLength and maxLength"),
    ({"type": "string", "format": "colour"}, "the schema: format 'colour'"),
    ({"type": "string", "pattern": 'a"b'}, "the schema: pattern"),
    ({"type": "string", "pattern": r"a\\b"}, "the schema: pattern"),
    ({"type": "string", "pattern": r"a\x22b"}, "the schema: pattern"),
    ({"type": "string", "pattern": r"a\nb"}, "the schema: pattern"),
    ({"type": "object", "required": ["a"]}, "the schema: required names 'a'"),
    ({"type": "object", "minProperties": 1}, "the schema: minProperties"),
    (
        {"type": "object", "propertyNames": {}, "properties": {"a": {}}},
        "the schema: propertyNames",
    ),
    ({"patternProperties": {"a": {}, "b": {}}}, "the schema: patternProperties"),
    (nested(MAX_NESTING + 2), "the schema is nested more than 64 levels deep"),
)


@pytest.mark.parametrize(("schema", "complaint"), REFUSED)
def test_it_is_refused_with_its_place(schema: Any, complaint: str) -> None:
    assert (complaint_about_schema(schema) or "").startswith(complaint)

"""Structured output without a server."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from engine.llm import LLM
from engine.sampling import SamplingParams, StructuredOutputsParams
from engine.structured_output.wishes import StructuredOutputKind
from telemetry.vocabulary import FinishReason
from tests.engine.structured_output.builders import wanted
from tests.engine.structured_output.conftest import Small


@pytest.fixture(scope="module")
def llm(small: Small) -> Iterator[LLM]:
    with LLM(small.directory, num_gpu_blocks_override=64, max_model_len=256) as llm:
        yield llm


def test_it_waits_for_grammars_while_nobody_else_runs(llm: LLM) -> None:
    wishes = [wanted("regex", "[ab]{3}"), wanted("choice", ["yes", "no"])]
    sampling = [SamplingParams(max_tokens=20, structured_outputs=wish) for wish in wishes]
    first, second = llm.generate(["One: ", "Two: "], sampling)
    assert re.fullmatch("[ab]{3}", first.outputs[0].text or "")
    assert second.outputs[0].text in ("yes", "no")


def test_a_wrong_grammar_is_told_and_the_others_are_answered(llm: LLM) -> None:
    wishes = [wanted("regex", "("), None]
    sampling = [SamplingParams(max_tokens=5, structured_outputs=wish) for wish in wishes]
    wrong, right = (result.outputs[0] for result in llm.generate(["One: ", "Two: "], sampling))
    assert (wrong.finish_reason, len(wrong.token_ids)) == (FinishReason.error, 0)
    assert "the regex cannot be compiled" in (wrong.error or "")
    assert (right.error, len(right.token_ids)) == (None, 5)


@pytest.mark.parametrize(
    ("kind", "spec", "complaint"),
    [
        ("json", '{"not": {}}', "not cannot be enforced"),
        ("json", "{", "the schema is not JSON"),
        ("choice", "[]", "a list of at least one text"),
        ("choice", "yes", "the choices are not JSON"),
        ("regex", "", "the regex is empty"),
        ("grammar", "", "the grammar is empty"),
        ("json_object", "{}", "leave its spec empty"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(
    kind: StructuredOutputKind, spec: str, complaint: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        StructuredOutputsParams(kind=kind, spec=spec)

"""The same decisions, made by vLLM and by our engine, are the same record.

Both play recorded runs (`tests/data/vectors`). What may differ stands here, with the reason.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from telemetry.collector.prefix_tree import PrefixTree
from telemetry.recorder import ListRecorder
from telemetry.records import Event, StepRow
from telemetry.vocabulary import EventKind
from tests.conformance import DEVIATIONS, Replayer
from tests.telemetry.sources.vllm.conftest import VECTORS, Lab

TIMES = {
    *("ts", "updated_ts", "schedule_ns", "update_ns", "inputs_ns", "forward_ns", "sample_ns"),
    *("oldest_load_ns", "queue_ns", "prefill_ns", "decode_ns", "preempted_ns", "load_ns"),
    *("mean_itl_ns", "max_itl_ns", "received_ts", "tokenized_ts"),
}
SALTED = {"prefix_hashes", "content_hashes", "grammar_key", "salt_key", "item_keys", "item_key"}
WORDS = {"adapter", "connector", "text", "request_id"}
"""Names that the two give differently."""
OUR_DRAFTS = {"num_draft_tokens", "num_padding_tokens"}
"""With steps in flight our engine counts drafts that it does not know as padding."""
OURS_ALONE = {"num_blocks_given_up", "num_hit_tokens_full_group"}
NOT_COMPARED = {
    EventKind.engine_started,
    EventKind.engine_stopped,
    EventKind.grammar_ready,  # vLLM notices when it looks at the request, our engine at once
    EventKind.grammar_failed,
}
EXCEPTIONS = {
    ("preempt_priority/withdrawn_chunk_stays_hashed", "num_blocks_free_cached"),
    ("preempt_priority/withdrawn_chunk_stays_hashed", "num_blocks_free_unhashed"),
    ("kv_connector/failed_recv_fail", "num_tokens"),
    ("kv_connector/failed_recv_fail", "num_computed_tokens"),
    ("session_more/drafts_for_preempted", "num_in_flight_tokens"),
}
"""vLLM's oddities: a withdrawn chunk stays hashed; a load whose failure ends its request cuts
nothing; a step counts as in flight also where no other can be scheduled beside it."""


def paths() -> list[Path]:
    return [path for path in sorted(VECTORS.rglob("*.json")) if path.name != "index.json"]


@pytest.fixture(scope="module")
def pairs(lab: Lab) -> dict[str, tuple[ListRecorder, ListRecorder, int]]:
    """Returns our engine's record and vLLM's of each vector, and the step where they part."""
    found = {}
    for path in paths():
        vector = json.loads(path.read_text())
        name = f"{vector['category']}/{vector['name']}"
        end, _ = DEVIATIONS.get(name, (None, ""))
        replayer = Replayer(vector)
        assert replayer.run(end) is None
        last = len(vector["steps"]) if end is None else end - 1
        found[name] = (replayer.recorder, lab.runs.vectors[name], last)
    return found


def test_the_vectors_were_all_played(pairs: dict[str, Any]) -> None:
    assert len(pairs) > 250


def test_steps_are_the_same(pairs: dict[str, tuple[ListRecorder, ListRecorder, int]]) -> None:
    names = {f.name for f in fields(StepRow)} - TIMES - OUR_DRAFTS - OURS_ALONE - {"num_repeats"}
    differences = []
    for vector, (ours, theirs, last) in pairs.items():
        rows = {row.step + i: row for row in theirs.steps for i in range(row.num_repeats)}
        for row in ours.steps:
            if row.step >= last:
                continue
            for name in names:
                mine, other = getattr(row, name), getattr(rows[row.step], name)
                if mine != other and not _is_no_draft_accepted(name, mine, other):
                    differences.append((vector, name, row.step, mine, other))
    assert [each for each in differences if each[:2] not in EXCEPTIONS] == []


def test_dense_rows_are_the_same(pairs: dict[str, tuple[ListRecorder, ListRecorder, int]]) -> None:
    differences = []
    for vector, (ours, theirs, last) in pairs.items():
        dense = dict(theirs.step_requests)
        for step, rows in ours.step_requests:
            if step >= last:
                continue
            for f in fields(rows):
                mine, other = getattr(rows, f.name), getattr(dense[step], f.name)
                if f.name != "num_accepted" and mine.tolist() != other.tolist():
                    differences.append((vector, f.name, step, mine.tolist(), other.tolist()))
    assert differences == []


def test_events_are_the_same(pairs: dict[str, tuple[ListRecorder, ListRecorder, int]]) -> None:
    differences = []
    for vector, (ours, theirs, last) in pairs.items():
        mine, other = _told(ours, last), _told(theirs, last)
        for key in mine.keys() | other.keys():
            if len(mine[key]) != len(other[key]):
                differences.append((vector, "number", *key, len(mine[key]), len(other[key])))
                continue
            for one, two in zip(mine[key], other[key], strict=True):
                differences += [
                    (vector, name, *key, one[name], two[name])
                    for name in one
                    if one[name] != two[name]
                ]
    assert [each for each in differences if each[:2] not in EXCEPTIONS] == []


def test_as_much_text_repeats_where_the_cache_cannot_see_it(
    pairs: dict[str, tuple[ListRecorder, ListRecorder, int]],
) -> None:
    found = {
        vector: (_repeated(ours, last), _repeated(theirs, last))
        for vector, (ours, theirs, last) in pairs.items()
    }
    differences = {
        (vector, request): (mine[request], other)
        for vector, (mine, others) in found.items()
        for request, other in others.items()
        if mine[request] != other
    }
    assert differences == {}
    assert sum(sum(others.values()) for _, others in found.values()) > 0


def _repeated(recorder: ListRecorder, last: int) -> dict[int, int]:
    """Returns how many blocks of each arriving request repeat text; those that have any block."""
    tree, found = PrefixTree(), {}
    for seq, event in enumerate(recorder.events):
        hashes = getattr(event, "prefix_hashes", None)
        if event.step < last and event.request is not None and hashes is not None:
            contents = getattr(event, "content_hashes", None)
            shared = tree.share(seq, event.request, hashes, contents).shared_content_blocks
            if shared is not None:
                found[event.request] = shared
    return found


def _is_no_draft_accepted(name: str, mine: Any, other: Any) -> bool:
    """Drafts whose requests ended in flight: our engine verifies none, vLLM's record says none."""
    return name == "num_accepted" and mine is None and other == 0


def _told(
    recorder: ListRecorder, last: int
) -> dict[tuple[str, int, int | None], list[dict[str, Any]]]:
    """Returns the events by kind, step and request, without times, salted keys and names."""
    told: dict[tuple[str, int, int | None], list[dict[str, Any]]] = defaultdict(list)
    for event in recorder.events:
        if event.step < last and event.kind not in NOT_COMPARED:
            kind = EventKind(event.kind)
            told[kind.name, event.step, event.request].append(_values(event))
    return told


def _values(event: Event) -> dict[str, Any]:
    left_out = TIMES | SALTED | WORDS | OURS_ALONE
    return {f.name: getattr(event, f.name) for f in fields(event) if f.name not in left_out}

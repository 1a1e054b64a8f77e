"""What a ring holds, as rows of the record's tables.

Pure: arrays and dictionaries in, rows out. Every event is a row of `request_events`; an event
class with a table of its own is a row there too, under the same `seq`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from telemetry.collector.prefix_tree import PrefixTree
from telemetry.records import EVENT_CLASSES, NULLS
from telemetry.ring.batch import Array, Loss, Position, RingBatch, RingState, split_blob
from telemetry.ring.reader import RingReader
from telemetry.store.rows import RowBuffer, clean_text, list_text
from telemetry.tables import event_columns
from telemetry.vocabulary import EventKind, Phase

_TABLE_OF_KIND: dict[int, str] = {
    int(EventKind.arrived): "request_arrivals",
    int(EventKind.input_added): "session_inputs",
    int(EventKind.finished): "request_finishes",
    int(EventKind.item_scheduled): "encoder_items",
}
_TEXT_COLUMNS = tuple(column.name for column in event_columns() if column.dtype == "str")
_COUNTS_COLUMNS = tuple(column.name for column in event_columns() if column.dtype == "u4[]")
_BASE = ("step", "ts", "request", "reason", "num_steps_in_flight")

COLLECTOR_SEQ = 1 << 63
"""Events that a collector adds are numbered from here: an engine's own never get so far."""
_REGIONS = ("steps", "events", "step_requests", "blob")

assert set(_TABLE_OF_KIND.values()) == {c.TABLE for c in EVENT_CLASSES if c.TABLE is not None}


def add_batch(
    rows: RowBuffer,
    engine: int,
    batch: RingBatch,
    prefixes: PrefixTree,
    dropped_kinds: Collection[int] = (),
) -> None:
    """Adds a batch's steps and events, and works out who shares a prefix, or text, with whom."""
    rows.add("steps", _with_engine(engine, batch.steps))
    if len(batch.events):
        _add_events(rows, engine, batch, prefixes, dropped_kinds)


def add_dense(
    rows: RowBuffer,
    engine: int,
    batch: RingBatch,
    begin: int,
    *,
    block_size: int | None = None,
    every: int = 1,
) -> None:
    """Adds a batch's dense rows from number `begin` on, those of each step that `every` divides."""
    skip = max(begin - batch.first_step_request, 0)
    dense = {name: array[skip:] for name, array in batch.step_requests.items()}
    if every > 1:
        is_kept = dense["step"] % every == 0
        dense = {name: array[is_kept] for name, array in dense.items()}
    num = len(dense["slot"])
    dense["engine"] = np.full(num, engine, np.uint64)
    if block_size is not None:
        dense["block_size"] = np.full(num, block_size, np.uint32)
    rows.add("step_requests", dense)


def _with_engine(engine: int, rows: Array) -> dict[str, Array]:
    names = rows.dtype.names or ()
    columns = {name: np.ascontiguousarray(rows[name]) for name in names}
    return {"engine": np.full(len(rows), engine, np.uint64), **columns}


def _add_events(
    rows: RowBuffer,
    engine: int,
    batch: RingBatch,
    prefixes: PrefixTree,
    dropped_kinds: Collection[int],
) -> None:
    is_kept = ~np.isin(batch.events["kind"], np.array([*dropped_kinds], np.uint8))
    kept = np.flatnonzero(is_kept).tolist()
    columns = _with_engine(engine, batch.events[is_kept])
    columns["seq"] = np.flatnonzero(is_kept).astype(np.uint64) + np.uint64(batch.first_event)
    all_texts = _texts_of(batch, prefixes)
    texts = [all_texts[index] for index in kept]
    for names, as_kept in ((_TEXT_COLUMNS, _text), (_COUNTS_COLUMNS, list_text)):
        for name in names:
            values = [as_kept(found.get(name)) for found in texts]
            if any(value is not None for value in values):
                columns[name] = np.array(values, dtype=object)
    rows.add("request_events", columns)
    for table, own in _own_rows(engine, batch, all_texts, kept).items():
        rows.add_rows(table, own)


def _texts_of(batch: RingBatch, prefixes: PrefixTree) -> list[dict[str, Any]]:
    """Returns what lay in the blob of each event, with what its block hashes say."""
    texts = []
    for index, text in enumerate(batch.texts):
        json_text, hashes = split_blob(text)
        found = _parsed(json_text)
        if hashes:
            request = int(batch.events["request"][index])
            contents = batch.contents[index]
            shared = prefixes.share(batch.first_event + index, request, hashes, contents)
            found |= shared.columns()
        texts.append(found)
    return texts


def _own_rows(
    engine: int, batch: RingBatch, texts: list[dict[str, Any]], kept: Iterable[int]
) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of event classes that have a table of their own."""
    own: dict[str, list[dict[str, Any]]] = {}
    for index in kept:
        table = _TABLE_OF_KIND.get(int(batch.events["kind"][index]))
        if table is None:
            continue
        event = batch.events[index]
        base = {name: _number(event, name) for name in _BASE}
        head = {"engine": engine, "seq": batch.first_event + index, **base}
        own.setdefault(table, []).append({**texts[index], **head})
    return own


def _number(event: Any, name: str) -> int | None:
    value = int(event[name])
    return None if value == NULLS[event.dtype[name].str[1:]] else value


def _parsed(text: bytes) -> dict[str, Any]:
    """Returns the JSON of an event; nothing where it has none, or it was overwritten."""
    if not text:
        return {}
    found = json.loads(text.decode("utf-8", "replace"))
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    return None if value is None else clean_text(str(value))


def dropped_rows(engine: int, batch: RingBatch, losses: Iterable[Loss]) -> list[dict[str, Any]]:
    """Returns a `records_dropped` event for each loss; of lost events it takes the first number."""
    step = int(batch.commits["step"][0])
    return [
        {
            "engine": engine,
            "seq": loss.first if loss.region == "events" else _own_seq(loss),
            "step": step,
            "ts": batch.ts,
            "kind": int(EventKind.records_dropped),
            "region": loss.region,
            "first_lost": loss.first,
            "last_lost": loss.last,
        }
        for loss in losses
    ]


def _own_seq(loss: Loss) -> int:
    return COLLECTOR_SEQ | _REGIONS.index(loss.region) << 56 | loss.first


def died_row(engine: int, state: RingState, position: Position, ts: int) -> dict[str, Any]:
    """Returns the `engine_died` event of an engine that never said good-bye.

    `ts` is its last sign of life: no row of it is newer, as intervals end there.
    """
    phase = Phase(state.phase).name if state.phase in list(Phase) else f"phase {state.phase}"
    return {
        "engine": engine,
        "seq": position.events,
        "step": state.current_step,
        "ts": ts,
        "kind": int(EventKind.engine_died),
        "reason": state.phase,
        "text": f"its process ended without good-bye, in phase {phase}",
    }


def engine_row(
    reader: RingReader, description: dict[str, Any], detail: str | None = None
) -> dict[str, Any]:
    """Returns the row of `engines`: what the engine said, and what its ring knows anyway."""
    known = {name: value for name, value in description.items() if value not in (None, "")}
    identity = reader.identity
    return {
        "host": identity.get("host"),
        "boot_id": identity.get("boot_id"),
        "source": identity.get("source"),
        **known,
        "pid": known.get("pid") or identity.get("pid"),
        "started_ts": known.get("started_ts") or identity.get("wall_anchor_ns"),
        "detail": detail,
        "engine": reader.engine,
    }


def block_size_of(description: dict[str, Any]) -> int | None:
    """Returns the tokens of an engine's KV block; None where it does not say."""
    value = description.get("block_size")
    return value if isinstance(value, int) and 0 < value < NULLS["u4"] else None


def heartbeat_row(engine: int, state: RingState) -> dict[str, Any]:
    """Returns the row of `heartbeats` for what the header says now."""
    return {
        "engine": engine,
        "ts": state.heartbeat_ns,
        "step": state.current_step,
        "phase": state.phase,
        "phase_age_ns": max(state.heartbeat_ns - state.phase_since_ns, 0),
        "rss_bytes": state.rss_bytes,
        "num_steps": state.num_steps,
        "num_events": state.num_events,
        "num_preemptions": state.num_preemptions,
        "num_recorder_errors": state.recorder_errors,
    }


def drain_row(
    engine: int, position: Position, ts: int, description: int, closed: bool
) -> dict[str, Any]:
    """Returns the row of `drains` that goes into the transaction of the rows read."""
    return {
        "engine": engine,
        "ts": ts,
        "num_commits": position.commits,
        "num_steps": position.steps,
        "num_events": position.events,
        "num_step_requests": position.step_requests,
        "description": description,
        "closed": closed,
    }

"""Each question's answer, compared with a count by hand over the recorded tables.

Nothing here uses the library's views or macros: what they say is worked out again in Python.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median_low
from typing import Any

import pytest

from telemetry.query.saved import library_queries
from telemetry.sql.cookbook import CHAPTERS, EXAMPLES, ask
from telemetry.store import Log
from telemetry.vocabulary import (
    EventKind,
    FinishReason,
    PreemptionCause,
    SkipReason,
    StopReason,
)
from tests.telemetry.recorded_run import FIRST, PAUSED_STEPS, SECOND
from tests.telemetry.recorded_sources import BLOCK_SIZE, LOST_MESSAGE

Row = dict[str, Any]
QUERIES = library_queries()
MS = 1e6


class Record:
    """The recorded rows, as plain dicts."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.steps = self.rows("steps", "engine, step")
        self.events = self.rows("request_events", "engine, seq")
        self.arrivals = self.rows("request_arrivals", "engine, request")
        self.ends = self.rows("request_finishes", "engine, request")

    def rows(self, table: str, order: str) -> list[Row]:
        rows: list[Row] = self._log.query(f"FROM {table} ORDER BY {order}").to_pylist()
        return rows

    def of(self, *kinds: EventKind) -> list[Row]:
        return [event for event in self.events if event["kind"] in kinds]

    def name(self, engine: int, request: int | None) -> str | None:
        names = {(a["engine"], a["request"]): a["request_id"] for a in self.arrivals}
        return None if request is None else names[engine, request]


@pytest.fixture(scope="module")
def record(log: Log) -> Record:
    return Record(log)


def answer(log: Log, name: str, *words: str) -> list[Row]:
    rows: list[Row] = ask(log, QUERIES[name], words).to_pylist()
    return rows


def per_minute(rows: list[Row]) -> Counter[int]:
    return Counter(row["ts"] // 60_000_000_000 for row in rows)


def test_every_saved_query_is_in_the_cookbook_once() -> None:
    told = [name for names in CHAPTERS.values() for name in names]
    assert sorted(told) == sorted(QUERIES)
    assert len(told) >= 20
    assert set(EXAMPLES) <= set(told)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_documents_its_question_and_every_column(log: Log, name: str) -> None:
    query = QUERIES[name]
    table = ask(log, query, EXAMPLES.get(name, ()))
    assert query.doc
    assert query.question.endswith("?")
    assert table.column_names == [column.name for column in query.columns]
    assert table.num_rows > 0
    for column in query.columns:
        assert column.name.startswith("num_") <= (column.unit != "-"), column
        assert column.name.endswith("_ms") == (column.unit == "ms"), column
        assert column.name.endswith("_ratio") == (column.unit == "ratio"), column


def test_engine_starts(log: Log, record: Record) -> None:
    first, second = answer(log, "engine-starts")
    assert (first["engine"], second["engine"]) == (FIRST, SECOND)
    assert (first["end_kind"], second["end_kind"]) == ("engine_died", "engine_stopped")
    ended = {end["request"] for end in record.ends if end["engine"] == FIRST}
    came = {a["request"] for a in record.arrivals if a["engine"] == FIRST}
    assert first["num_unfinished"] == len(came - ended) > 0
    assert second["num_unfinished"] == 0
    steps = [s["num_repeats"] for s in record.steps if s["engine"] == SECOND]
    assert second["num_steps"] == sum(steps)


def test_record_gaps(log: Log, record: Record) -> None:
    for row in answer(log, "record-gaps"):
        counted = max(
            s["num_preemptions_total"] for s in record.steps if s["engine"] == row["engine"]
        )
        told = sum(e["engine"] == row["engine"] for e in record.of(EventKind.preempted))
        assert row["num_unattributed"] == counted - told == 0
        assert row["num_dropped_rows"] == row["num_missing_steps"] == 0


def test_arrivals_by_minute(log: Log, record: Record) -> None:
    rows = answer(log, "arrivals-by-minute")
    came, went = per_minute(record.arrivals), per_minute(record.ends)
    minutes = sorted(came | went)
    assert [row["num_arrived"] for row in rows] == [came[minute] for minute in minutes]
    assert [row["num_ended"] for row in rows] == [went[minute] for minute in minutes]


def test_latency_percentiles(log: Log, record: Record) -> None:
    rows = {row["measure"]: row for row in answer(log, "latency-percentiles")}
    ttft = [
        end["queue_ns"] + end["prefill_ns"]
        for end in record.ends
        if end["reason"] in (FinishReason.stop, FinishReason.length)
    ]
    assert rows["ttft"]["num_requests"] == len(ttft)
    assert rows["ttft"]["p50_ms"] == pytest.approx(median_low(ttft) / MS, abs=0.051)
    assert rows["ttft"]["max_ms"] == pytest.approx(max(ttft) / MS, abs=0.051)


def test_slowest_first_tokens(log: Log, record: Record) -> None:
    rows = answer(log, "slowest-first-tokens")
    known = [end for end in record.ends if end["prefill_ns"] is not None]
    slowest = max(known, key=lambda end: end["queue_ns"] + end["prefill_ns"])
    assert rows[0]["request_id"] == record.name(slowest["engine"], slowest["request"])
    assert rows[0]["queue_ms"] == pytest.approx(slowest["queue_ns"] / MS, abs=0.051)
    assert len(rows) == 10


def test_longest_pauses(log: Log, record: Record) -> None:
    rows = answer(log, "longest-pauses")
    worst = max((e for e in record.ends if e["max_itl_ns"]), key=lambda end: end["max_itl_ns"])
    assert rows[0]["request_id"] == record.name(worst["engine"], worst["request"])
    assert rows[0]["longest_pause_ms"] == pytest.approx(worst["max_itl_ns"] / MS, abs=0.051)
    assert rows[0]["num_preemptions"] == worst["num_preemptions"] > 0


def test_unhappy_ends(log: Log, record: Record) -> None:
    (row,) = answer(log, "unhappy-ends")
    (gone,) = (end for end in record.ends if end["reason"] == FinishReason.abort_client)
    assert row["finish_reason"] == "abort_client"
    assert row["request_ids"] == [record.name(gone["engine"], gone["request"])] == ["req-20"]
    assert row["num_output_tokens"] == gone["num_output_tokens"]


def test_unfinished(log: Log, record: Record) -> None:
    rows = answer(log, "unfinished")
    ended = {(end["engine"], end["request"]) for end in record.ends}
    open_ = [a for a in record.arrivals if (a["engine"], a["request"]) not in ended]
    assert {row["request_id"] for row in rows} == {a["request_id"] for a in open_}
    assert {row["engine_end"] for row in rows} == {"engine_died"}


def test_request_story(log: Log, record: Record) -> None:
    rows = answer(log, "request-story", "--param", "request_id=req-6<script>")
    (one,) = (
        a for a in record.arrivals if a["request_id"] == "req-6<script>" and a["engine"] == FIRST
    )
    both = [
        event
        for event in record.events
        if event["request"] == one["request"]
        and (event["engine"] == FIRST or record.name(SECOND, 6) == "req-6<script>")
    ]
    assert [row["what"] for row in rows] == [EventKind(event["kind"]).name for event in both]
    assert rows[0]["what"] == "arrived"


def test_preemptions_by_minute(log: Log, record: Record) -> None:
    rows = answer(log, "preemptions-by-minute")
    lost: dict[str, int] = defaultdict(int)
    for event in record.of(EventKind.preempted):
        lost[PreemptionCause(event["cause"]).name] += event["num_computed_tokens_lost"]
    assert sum(row["num_preemptions"] for row in rows) == len(record.of(EventKind.preempted)) > 10
    for cause, tokens in lost.items():
        assert sum(r["num_tokens_lost"] for r in rows if r["cause"] == cause) == tokens


def test_most_evicted(log: Log, record: Record) -> None:
    rows = answer(log, "most-evicted", "--param", "at_least=2")
    times = Counter((e["engine"], e["request"]) for e in record.of(EventKind.preempted))
    often = {key: num for key, num in times.items() if num >= 2}
    assert {(r["engine"], r["request_id"]): r["num_preemptions"] for r in rows} == {
        (engine, record.name(engine, request)): num for (engine, request), num in often.items()
    }
    worst = rows[0]
    by = {
        record.name(e["engine"], e["beneficiary"])
        for e in record.of(EventKind.preempted)
        if record.name(e["engine"], e["request"]) == worst["request_id"]
    }
    assert set(worst["evicted_for"].split(", ")) == by
    assert answer(log, "most-evicted") == [row for row in rows if row["num_preemptions"] >= 3]


def test_who_evicted_others(log: Log, record: Record) -> None:
    rows = answer(log, "who-evicted-others")
    taken = Counter(
        (e["engine"], record.name(e["engine"], e["beneficiary"]))
        for e in record.of(EventKind.preempted)
        if e["beneficiary"] != e["request"]
    )
    assert rows[0]["num_evictions"] == taken.most_common(1)[0][1]
    assert {
        (r["engine"], r["request_id"]): r["num_evictions"] for r in rows if r["num_evictions"]
    } == taken


def test_lost_tokens(log: Log, record: Record) -> None:
    (row,) = answer(log, "lost-tokens")
    lost = sum(e["num_computed_tokens_lost"] for e in record.of(EventKind.preempted))
    assert row["num_tokens_lost"] == lost > 0
    assert lost == sum(value for name, value in list(row.items())[3:])
    assert row["num_recomputed"] <= sum(s["num_recomputed_tokens"] for s in record.steps)


def test_why_nobody_admitted(log: Log, record: Record) -> None:
    rows = {row["stop_reason"]: row for row in answer(log, "why-nobody-admitted")}
    shut = [
        step
        for step in record.steps
        if step["num_admitted"] + step["num_resumed"] == 0 and step["num_waiting"] > 0
    ]
    counted = Counter(StopReason(step["stop_reason"]).name for step in shut)
    assert {name: row["num_steps"] for name, row in rows.items()} == counted
    paused = rows["paused_new"]
    assert PAUSED_STEPS.start <= paused["first_step"] <= paused["last_step"] < PAUSED_STEPS.stop


def test_why_nobody_admitted_in_a_window(log: Log, record: Record) -> None:
    rows = answer(log, "why-nobody-admitted", *EXAMPLES["why-nobody-admitted"])
    all_rows = answer(log, "why-nobody-admitted")
    assert 0 < sum(r["num_steps"] for r in rows) < sum(r["num_steps"] for r in all_rows)


def test_admission_gaps(log: Log, record: Record) -> None:
    rows = answer(log, "admission-gaps")
    longest = current = 0
    for step in (s for s in record.steps if s["engine"] == FIRST):
        is_shut = step["num_admitted"] + step["num_resumed"] == 0 and step["num_waiting"] > 0
        current = current + step["num_repeats"] if is_shut else 0
        longest = max(longest, current)
    assert max(row["num_steps"] for row in rows if row["engine"] == FIRST) == longest
    assert "paused_new" in {row["mostly"] for row in rows}


def test_waits_by_reason(log: Log, record: Record) -> None:
    rows = answer(log, "waits-by-reason")
    waited = sum(step["num_waiting"] * step["num_repeats"] for step in record.steps)
    assert sum(row["num_request_steps"] for row in rows) == waited
    assert {"lora_slots", "kv_blocks_whole_prompt", "behind_head"} <= {
        row["wait_reason"] for row in rows
    }


def test_adapter_waits(log: Log, record: Record) -> None:
    rows = {row["adapter"]: row for row in answer(log, "adapter-waits")}
    adapters = {(a["engine"], a["request"]): a["adapter"] for a in record.arrivals}
    assert {name: row["num_requests"] for name, row in rows.items()} == Counter(adapters.values())
    aside = Counter(
        adapters[e["engine"], e["request"]]
        for e in record.of(EventKind.skipped)
        if e["reason"] == SkipReason.lora_slots
    )
    assert {
        name: row["num_set_aside"] for name, row in rows.items() if row["num_set_aside"]
    } == aside
    waits = defaultdict(list)
    for end in record.ends:
        waits[adapters[end["engine"], end["request"]]].append(end["queue_ns"] or 0)
    longest = {name: max(queue) / MS for name, queue in waits.items()}
    assert {n: r["max_queue_ms"] for n, r in rows.items()} == pytest.approx(longest, abs=0.051)


def test_kv_holders(log: Log, record: Record) -> None:
    for row in answer(log, "kv-holders"):
        free = {
            step["step"]: step["num_blocks_free_unhashed"] + step["num_blocks_free_cached"]
            for step in record.steps
            if step["engine"] == row["engine"]
        }
        assert row["num_blocks_free"] == min(free.values()) == free[row["step"]]
        held = [row[f"num_blocks_{who}"] for who in ("running", "waiting", "kept", "free")]
        assert sum(held) == row["num_blocks_pool"]


def test_token_work(log: Log, record: Record) -> None:
    rows = {row["work"]: row for row in answer(log, "token-work")}
    scheduled = sum(step["num_scheduled_tokens"] for step in record.steps)
    recomputed = sum(step["num_recomputed_tokens"] for step in record.steps)
    assert sum(row["num_tokens"] for row in rows.values()) == scheduled
    assert rows["recomputed"]["num_tokens"] == recomputed
    assert rows["recomputed"]["share_ratio"] == pytest.approx(recomputed / scheduled, abs=0.0006)


def test_slowest_steps(log: Log, record: Record) -> None:
    rows = answer(log, "slowest-steps")
    slowest = max(record.steps, key=lambda step: step["updated_ts"] - step["ts"])
    assert (rows[0]["engine"], rows[0]["step"]) == (slowest["engine"], slowest["step"])
    assert rows[0]["forward_ms"] == pytest.approx(slowest["forward_ns"] / MS, abs=0.051)


def test_prefix_hits(log: Log, record: Record) -> None:
    for row in answer(log, "prefix-hits"):
        admitted = [e for e in record.of(EventKind.admitted) if e["engine"] == row["engine"]]
        hits = sum(event["num_hit_tokens"] for event in admitted)
        assert (row["num_admissions"], row["num_hit_tokens"]) == (len(admitted), hits)
        assert row["hit_ratio"] == pytest.approx(hits / row["num_prompt_tokens"], abs=0.0006)


def test_loads_by_tier(log: Log, record: Record) -> None:
    rows = {row["tier"]: row for row in answer(log, "loads-by-tier")}
    started = {(e["engine"], e["request"]): e["ts"] for e in record.of(EventKind.load_started)}
    took: dict[str, list[int]] = defaultdict(list)
    for event in record.of(EventKind.load_finished):
        begun = started[event["engine"], event["request"]]
        took["host" if event["tier"] == 1 else "disk"].append(event["ts"] - begun)
    assert {tier: row["num_loads"] for tier, row in rows.items()} == {
        t: len(n) for t, n in took.items()
    }
    for tier, times in took.items():
        assert rows[tier]["max_ms"] == pytest.approx(max(times) / MS, abs=0.051)
        assert rows[tier]["p50_ms"] == pytest.approx(median_low(times) / MS, abs=0.051)


def test_kv_blocks_by_minute(log: Log, record: Record) -> None:
    events = record.rows("kv_events", "ts, event_index")
    rows = answer(log, "kv-blocks-by-minute")
    there: set[str] = set()
    counted = Counter[str]()
    for event in events:
        for block in event["block_hashes"].split(" "):
            if event["kind"] == "removed":
                there.discard(block)
                counted["removed"] += 1
            else:
                counted["told_again" if block in there else "stored"] += 1
                there.add(block)
    for kind, number in counted.items():
        assert sum(row[f"num_{kind}_blocks"] for row in rows) == number > 0
    assert len(counted) == 3
    assert len(rows) == len(per_minute(events))
    assert sum(row["num_lost_messages"] for row in rows) == 1
    assert LOST_MESSAGE not in {event["batch"] for event in events}


def test_kv_blocks_stored_again(log: Log, record: Record) -> None:
    removed_at: dict[str, int] = {}
    away: list[int] = []
    num_removed = 0
    for event in record.rows("kv_events", "ts, event_index"):
        for block in event["block_hashes"].split(" "):
            if event["kind"] == "removed":
                num_removed += 1
                removed_at[block] = event["ts"]
            elif block in removed_at:
                away.append(event["ts"] - removed_at.pop(block))
    (row,) = answer(log, "kv-blocks-stored-again")
    assert row["num_removed_blocks"] == num_removed
    assert row["num_stored_again_blocks"] == len(away) > 0
    assert row["num_stored_again_tokens"] == len(away) * BLOCK_SIZE
    assert row["came_back_ratio"] == pytest.approx(len(away) / num_removed, abs=0.0006)
    assert row["p50_away_ms"] == pytest.approx(median_low(away) / MS, abs=0.051)


def test_settings_changes(log: Log) -> None:
    rows = answer(log, "settings-changes")
    assert {(r["setting"], r["before"], r["after"]) for r in rows} == {
        ("cache.num_gpu_blocks", "41", "96"),
        ("scheduler.max_num_seqs", "14", "6"),
    }
    assert {row["engine"] for row in rows} == {SECOND}


def test_one_engine_can_be_asked_for(log: Log) -> None:
    for name in sorted(set(QUERIES) - {"request-story", "settings-changes"}):
        rows = answer(log, name, "--param", f"engine={SECOND:x}")
        assert {row["engine"] for row in rows if "engine" in row} <= {SECOND}, name

"""What a row of each table is, and an example. The columns say the rest themselves (`records`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDoc:
    """A table: what a row is, a statement that uses it."""

    doc: str
    example: str


TABLE_DOCS: dict[str, TableDoc] = {
    "engines": TableDoc(
        doc="One row an engine start: where it runs, what it serves, all its settings. The typed "
        "columns are those that people and rules ask for; `settings` holds every one as JSON. An "
        "engine that runs past midnight stands here once.",
        example="SELECT engine, model, max_num_seqs, num_usable_blocks, enable_prefix_caching\n"
        "FROM engines ORDER BY started_ts",
    ),
    "steps": TableDoc(
        doc="One row a call of `schedule()`: what it could give, what it gave and to whom, who "
        "waits, where the KV blocks are, and why admission ended. Equal steps that scheduled "
        "nothing are one row with a count (`num_repeats`).",
        example="SELECT step, num_running, num_waiting, num_scheduled_tokens,\n"
        "  stop_reason_name(stop_reason) AS stop_reason\n"
        "FROM steps ORDER BY num_scheduled_tokens DESC, ts LIMIT 3",
    ),
    "step_requests": TableDoc(
        doc="One row a request in a step, in scheduling order: what it wanted and what it was "
        "given. Kept with detail `full`, or of every Nth step with `sampled=N`, in a file of its "
        "own a day.",
        example="SELECT request, count(*) AS num_steps, sum(num_scheduled_tokens) AS num_tokens\n"
        "FROM step_requests GROUP BY request ORDER BY num_tokens DESC, request LIMIT 3",
    ),
    "request_arrivals": TableDoc(
        doc="One row a request, written when it is queued, so that a stuck one is in the log too.",
        example="SELECT request_id, num_prompt_tokens, max_tokens, priority, adapter\n"
        "FROM request_arrivals ORDER BY ts, request LIMIT 3",
    ),
    "request_finishes": TableDoc(
        doc="One row a request that has ended, with its times. Every request ends exactly once.",
        example="SELECT finish_reason_name(reason) AS reason, count(*) AS num_requests\n"
        "FROM request_finishes GROUP BY reason ORDER BY num_requests DESC, reason",
    ),
    "request_events": TableDoc(
        doc="One row an event of a request or of the engine. `seq` is the order in which they "
        "happened: inside a step, that order is the explanation. A kind fills the columns that "
        "concern it; the others are NULL.",
        example="SELECT event_kind_name(kind) AS kind, count(*) AS num_events\n"
        "FROM request_events GROUP BY kind ORDER BY num_events DESC, kind LIMIT 5",
    ),
    "session_inputs": TableDoc(
        doc="One row a further turn of a streaming session.",
        example="SELECT count(*) AS num_inputs FROM session_inputs",
    ),
    "encoder_items": TableDoc(
        doc="One row an encoder item (an image, say) that was computed in a step.",
        example="SELECT count(*) AS num_items, sum(num_embeds) AS num_embeds FROM encoder_items",
    ),
    "heartbeats": TableDoc(
        doc="One row a second and living engine: what its step loop was doing. A stuck engine "
        "shows here, since a process that stands still writes no events.",
        example="SELECT phase_name(phase) AS phase, count(*) > 0 AS was_seen\n"
        "FROM heartbeats GROUP BY phase ORDER BY phase LIMIT 3",
    ),
    "clock_anchors": TableDoc(
        doc="One row a minute: the two clocks of an engine side by side. How far they have drifted "
        "apart is how far `ts` is from the wall clock.",
        example="SELECT count(*) AS num_anchors FROM clock_anchors WHERE wall_ns IS NULL",
    ),
    "drains": TableDoc(
        doc="One row an engine and day: how far its ring has been read, written in the same "
        "transaction as the rows. `dense_drains` is the same for the dense file.",
        example="SELECT engine, num_steps, num_events, closed FROM drains\n"
        "ORDER BY num_steps DESC, ts LIMIT 3",
    ),
    "samples": TableDoc(
        doc="One row a value scraped from elsewhere, under the name that the source gives it. A "
        "histogram is its buckets, sum and count. Counters are as they were scraped: a restart "
        "makes them fall.",
        example="SELECT count(DISTINCT metric) AS num_metrics FROM samples",
    ),
    "log_lines": TableDoc(
        doc="One row a line of an engine's log that tells of something going wrong, or of its "
        "life. Lines with numbers are rows of `samples`; a request's content is never kept.",
        example="SELECT kind, count(*) AS num_lines FROM log_lines GROUP BY kind ORDER BY kind",
    ),
    "engine_spans": TableDoc(
        doc="One row a span that an engine exported itself, like vLLM's `llm_request`. It knows "
        "nothing of preemptions: waiting after one is part of `decode_ns`.",
        example="SELECT name, count(*) AS num_spans, max(e2e_ns) AS longest_ns\n"
        "FROM engine_spans GROUP BY name ORDER BY name",
    ),
    "kv_events": TableDoc(
        doc="One row a KV event: blocks that entered or left the prefix cache. It names no "
        "request. A hit is told as stored, too: vLLM tells so what is in use again.",
        example="SELECT kind, sum(num_blocks) AS num_blocks\n"
        "FROM kv_events GROUP BY kind ORDER BY kind",
    ),
    "imports": TableDoc(
        doc="One row an import that was carried out: what was read, what was not understood.",
        example="SELECT source, num_read, num_unread FROM imports ORDER BY ts, source",
    ),
    "findings": TableDoc(
        doc="One row a change in the life of a finding, and one each time that a person "
        "acknowledged or silenced. `finding_states` is what stands now, `finding_changes` the "
        "story.",
        example="SELECT event, count(*) AS num_rows FROM findings GROUP BY event ORDER BY event",
    ),
    "exports": TableDoc(
        doc="One row an engine: how far it has been exported as spans.",
        example="SELECT engine, next_step FROM exports ORDER BY ts DESC, engine LIMIT 3",
    ),
    "removed_days": TableDoc(
        doc="One row a file that was removed because the log may keep no more: by age, or by its "
        "size in all. What it held is gone.",
        example="SELECT limit_name, count(*) AS num_files, sum(size_bytes) AS size_bytes\n"
        "FROM removed_days GROUP BY limit_name ORDER BY limit_name",
    ),
    "vocabulary": TableDoc(
        doc="Every closed set by code and name; docs/record.md explains the words. Each file of a "
        "log has its own, so a log of a newer version reads right.",
        example="SELECT code, name FROM vocabulary WHERE enum = 'preemption_cause' ORDER BY code",
    ),
    "schema_info": TableDoc(
        doc="One row a version of the tables that has written into the log, and the version of the "
        "program that reads it.",
        example="SELECT min(version) AS oldest FROM schema_info",
    ),
}
"""Every table that a reader of a log may ask, in the order in which they are told."""

"""What happened to one request, as lines of a table: time, what, why, cost, step.

Rows in, words out: no log and no Streamlit. Words from outside are left as they are; whoever draws
them makes them harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagnose.words import NOT_MEASURED, count, duration, plural, time_of_day

Row = dict[str, Any]
"""A row of a query; what is NULL is None."""
UNTOLD = (None, "not_visited", "behind_head")
"""Reasons of a wait that do not say what it was for: the chart says what held up the others."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story."""

    time: str
    what: str
    why: str
    cost: str
    step: int | None


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a request and what it is."""

    value: str
    name: str


def headline(request: Row, losses: list[Row]) -> str:
    """Returns the verdict on a request: evicted or not, ended or not, in how long."""
    number, times = request["request"], len(losses)
    first = f"Request {number:,}"
    evicted = f"was evicted {plural(times, 'time')}" if times else "was never evicted"
    if not request["is_finished"]:
        return f"{first} {evicted} and has not ended."
    waiting = (request["queue_ns"] or 0) + (request["preempted_ns"] or 0)
    took = duration(request["e2e_ns"])
    ended = {
        "stop": "finished",
        "length": "finished",
        "abort_client": "was given up by its client",
        "abort_api": "was aborted",
        "abort_timeout": "ran out of time",
        "error": "failed",
        "refused": "was refused",
    }.get(request["finish_reason"] or "", "ended")
    link = "and still" if times and ended == "finished" else "and"
    return f"{first} {evicted} {link} {ended}: {took}, of which {duration(waiting)} waiting."


def figures(request: Row, losses: list[Row], intervals: list[Row]) -> list[Figure]:
    """Returns the six figures of a request; before its end they come from its stretches."""
    first = {row["phase"]: row for row in intervals if row["nth"] == 1}
    reason = first.get("queued", {}).get("reason")
    queued = "queued" if reason in UNTOLD else f"queued ({reason})"
    queue_ns = _known(request["queue_ns"], first, "queued")
    prefill_ns = _known(request["prefill_ns"], first, "prefill")
    ttft_ns = None if queue_ns is None or prefill_ns is None else queue_ns + prefill_ns
    return [
        Figure(duration(queue_ns), queued),
        Figure(duration(ttft_ns), "to first token"),
        Figure(_evicted(losses, intervals), f"evicted, {plural(len(losses), 'time')}"),
        Figure(_sum(losses, "num_computed_tokens_lost"), "computed tokens lost"),
        Figure(_sum(losses, "num_tokens_recomputed"), "tokens computed again"),
        Figure(duration(request["max_itl_ns"]), "longest pause in the answer"),
    ]


def _evicted(losses: list[Row], intervals: list[Row]) -> str:
    """Returns how long it was out; while it still is, at least so long."""
    out = [row["out_ns"] for row in losses if row["out_ns"] is not None]
    still = [
        row["duration_ns"] for row in intervals if row["phase"] == "preempted" and row["is_open"]
    ]
    if not losses:
        return "0"
    if not out and not still:
        return NOT_MEASURED
    return ("≥ " if still else "") + duration(sum(out) + sum(still))


def _known(told: int | None, first: dict[str, Row], phase: str) -> int | None:
    """Returns what the end told; else the first stretch of a phase, where it is over."""
    if told is not None or phase not in first or first[phase]["is_open"]:
        return told
    return int(first[phase]["duration_ns"])


def _sum(rows: list[Row], name: str) -> str:
    values = [row[name] for row in rows]
    return NOT_MEASURED if any(value is None for value in values) else count(sum(values))


def lines(
    rows: list[Row], losses: list[Row], request: Row, lost_ts: int | None = None
) -> list[Line]:
    """Returns the story: arrival, admission, evictions, end. A return is told with its eviction.

    Args:
        rows: what `queries.requests.story` gives, in order.
        losses: its preemptions, in order.
        request: its row in `requests`.
        lost_ts: when its engine stopped without saying goodbye, if it did.
    """
    told: list[Line] = []
    nth = 0
    for index, row in enumerate(rows):
        match row["kind"]:
            case "arrived":
                told.append(_arrived(row, rows[index + 1 :]))
            case "admitted":
                told.append(_admitted(row, rows[index + 1 :]))
            case "preempted":
                loss = losses[nth] if nth < len(losses) else None
                nth += 1
                told.append(_preempted(row, loss, nth))
            case "resumed" | "first_token" | "caught_up":
                continue
            case "finished":
                told.append(_finished(row, request))
            case _:
                told.append(_other(row))
    if lost_ts is not None and not request["is_finished"]:
        why = "the engine stopped without saying goodbye"
        told.append(Line(time_of_day(lost_ts, 3), "no end", why, NOT_MEASURED, None))
    return told


def _line(row: Row, what: str, why: str, cost: str) -> Line:
    step = None if row["step"] is None else int(row["step"])
    return Line(time_of_day(int(row["ts"]), 3), what, why, cost, step)


def _arrived(row: Row, later: list[Row]) -> Line:
    free = row["num_blocks_free"]
    why = f"{count(row['num_waiting'])} waiting, "
    why += f"{NOT_MEASURED} blocks free" if free is None else f"{plural(free, 'block')} free"
    if row["head_blocks_needed"] is not None:
        why += f", the queue head needs {row['head_blocks_needed']:,}: {row['stop_reason']}"
    elif row["stop_reason"] is not None:
        why += f": {row['stop_reason']}"
    over = next((each for each in later if each["kind"] in ("admitted", "finished")), None)
    waited = "" if over is None else duration(over["ts"] - row["ts"])
    return _line(row, "arrived", why, waited)


def _admitted(row: Row, later: list[Row]) -> Line:
    why = f"prefill {plural(row['num_scheduled_tokens'] or 0, 'token')}"
    if row["num_hit_tokens"]:
        why += f", {row['num_hit_tokens']:,} from the cache"
    first = next((item for item in later if item["kind"] == "first_token"), None)
    cost = ""
    if first is not None:
        why += f", first token at {time_of_day(int(first['ts']), 3)}"
        cost = duration(first["ts"] - row["ts"])
    return _line(row, "admitted", why, cost)


def _preempted(row: Row, loss: Row | None, nth: int) -> Line:
    if loss is None:
        return _line(row, f"preempted {nth}", NOT_MEASURED, NOT_MEASURED)
    if loss["beneficiary"] is None:
        why = "the prefix cache was reset"
    elif loss["beneficiary"] == loss["request"]:
        why = f"its own request for {plural(loss['num_blocks_needed'] or 0, 'block')} failed"
    else:
        why = (
            f"for request {loss['beneficiary']:,}, which needed "
            f"{plural(loss['num_blocks_needed'] or 0, 'block')}"
        )
    if loss["num_blocks_freed"] is not None:
        why += f"; {plural(loss['num_blocks_freed'], 'block')} freed"
    if loss["num_tokens_regained_from_prefix_cache"]:
        why += f", {loss['num_tokens_regained_from_prefix_cache']:,} tokens still in the cache"
    if loss["num_tokens_recomputed"]:
        why += f", {loss['num_tokens_recomputed']:,} computed again"
    out = "still out" if loss["out_ns"] is None else f"out {duration(loss['out_ns'])}"
    if loss["outcome"] == "never_resumed":
        out = "never resumed"
    return _line(
        row, f"preempted {nth}", why, f"{count(loss['num_computed_tokens_lost'])} lost, {out}"
    )


def _finished(row: Row, request: Row) -> Line:
    why = f"{plural(request['num_output_tokens'] or 0, 'token')}: {row['reason'] or NOT_MEASURED}"
    if row["text"]:
        why += f"; {row['text']}"
    cost = f"decode {duration(request['decode_ns'])}" if request["decode_ns"] is not None else ""
    return _line(row, "finished", why, cost)


def _other(row: Row) -> Line:
    why = row["reason"] or row["text"] or ""
    return _line(row, str(row["kind"]).replace("_", " "), why, "")

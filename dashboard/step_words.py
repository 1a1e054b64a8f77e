"""The lines of the step inspector: its batch in numbers, evictions, who was served, who waits.

Facts in, words out: no log and no Streamlit. `–` was not measured; `0` was counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.untrusted import in_markdown
from diagnose.words import NOT_MEASURED, count, plural
from telemetry.step_facts import PHASES, Row, StepFacts
from telemetry.step_headline import headline, stop_sentence

BETWEEN = "between them"
NOT_IN_USE = f"{NOT_MEASURED} not in use"
NOT_RECORDED = f"{NOT_MEASURED} not recorded"
_DASH = re.compile(r"(?<!\S)-(?!\S)")


def title(facts: StepFacts) -> str:
    """Returns the step's arithmetic in a sentence."""
    return f"Step {facts.asked:,}: {_dashed(headline(facts))}"


def why_stopped(facts: StepFacts) -> str:
    """Returns the number that ended admission."""
    return _dashed(stop_sentence(facts))


def _dashed(text: str) -> str:
    return _DASH.sub(NOT_MEASURED, text)


def took_ns(facts: StepFacts) -> int | None:
    """Returns the time from its schedule to its update."""
    updated = facts.step["updated_ts"]
    return None if updated is None else int(updated) - int(facts.step["ts"])


def phases(facts: StepFacts) -> list[tuple[str, int]]:
    """Returns the phases that took time, in order, and what no phase accounts for."""
    known = [(name, int(ns)) for name in PHASES if (ns := facts.step[f"{name}_ns"]) is not None]
    took = took_ns(facts)
    rest = 0 if took is None else took - sum(ns for _, ns in known)
    if known and rest > 0:
        known.append((BETWEEN, rest))
    return [(name, ns) for name, ns in known if ns]


def batch_numbers(facts: StepFacts, before: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Returns the batch in numbers: name and value. `before` is the state the step began with."""
    step, engine = facts.step, facts.engine
    pool = engine.get("num_usable_blocks")
    used = _used(pool, facts.num_blocks_free)
    used_before = None if before is None else _used(pool, before["num_blocks_free"])
    running = step["num_running"]
    return [
        ("requests running", _change(None if before is None else before["num_running"], running)),
        ("tokens scheduled", _tokens(step)),
        ("KV blocks used", f"{_change(used_before, used)} of {count(pool)}"),
        ("blocks held by waiting", count(step["num_blocks_waiting"])),
        (
            "admitted, resumed, evicted",
            ", ".join(count(step[f"num_{n}"]) for n in ("admitted", "resumed", "preempted")),
        ),
        ("sequence slots used", f"{count(running)} of {count(engine.get('max_num_seqs'))}"),
        ("token budget", _budget(step)),
        ("drafts", _drafts(facts)),
        ("LoRA adapters", _of(step["num_adapters"], engine.get("max_loras"))),
        ("encoder embeddings", _of(step["num_encoder_embeds"], step["encoder_budget"])),
    ]


def _used(pool: int | None, free: int | None) -> int | None:
    return None if pool is None or free is None else pool - free


def _change(before: int | None, now: int | None) -> str:
    return f"**{count(now)}**" if before is None else f"{count(before)} → **{count(now)}**"


def _tokens(step: Row) -> str:
    if step["num_scheduled_tokens"] is None:
        return NOT_RECORDED
    parts = [
        f"{count(step[f'num_{name}_tokens'])} {said}"
        for name, said in (
            ("decode", "decode"),
            ("prefill", "prefill"),
            ("recomputed", "computed before"),
        )
    ]
    return f"**{count(step['num_scheduled_tokens'])}** ({', '.join(parts)})"


def _budget(step: Row) -> str:
    budget, given = step["token_budget"], step["num_scheduled_tokens"]
    if budget is None:
        return NOT_RECORDED
    left = "" if given is None else f", {budget - given:,} left"
    return f"{budget:,}{left}"


def _drafts(facts: StepFacts) -> str:
    if facts.engine.get("num_speculative_tokens") is None:
        return NOT_IN_USE
    placed, right = facts.step["num_placed"], facts.step["num_accepted"]
    return f"{count(placed)} verified, {count(right)} right"


def _of(number: int | None, limit: int | None) -> str:
    return NOT_IN_USE if not limit else f"{count(number)} of {limit:,}"


def evictions(facts: StepFacts) -> list[dict[str, str]]:
    """Returns a line an eviction, in order: who asked, who paid, what it brought."""
    return [
        {
            "no.": str(number),
            "who asked": _who_asked(event),
            "who paid": f":orange[▼] evicts **{event['request']}**",
            "blocks freed": count(event["num_blocks_freed"]),
            "tokens lost": count(event["num_computed_tokens_lost"]),
        }
        for number, event in enumerate(facts.preemptions(), 1)
    ]


def rules(facts: StepFacts) -> str:
    """Returns by which rule the victims were chosen, and how many were evicted in vain."""
    events = facts.preemptions()
    counted = Counter(str(event["victim_rule"] or NOT_MEASURED) for event in events)
    told = ", ".join(
        in_markdown(rule) + (f" {number:,}" if len(counted) > 1 else "")
        for rule, number in counted.most_common()
    )
    in_vain = sum(event["beneficiary_allocated"] == 0 for event in events)
    return f"victims chosen by: {told}" + (f"; {in_vain:,} in vain" if in_vain else "")


def _who_asked(event: Row) -> str:
    if event["beneficiary"] is None:
        return "a reset of the prefix cache"
    needed = event["num_blocks_needed"]
    needs = f"{NOT_MEASURED} blocks" if needed is None else plural(needed, "block")
    return (
        f"**{event['beneficiary']}** needs {needs}, {count(event['num_blocks_free_before'])} free"
    )


def served(facts: StepFacts) -> list[dict[str, Any]]:
    """Returns a line a request in the order that the scheduler served it; None: not measured."""
    notes = _notes(facts)
    left = facts.step["token_budget"]
    lines = []
    for order, row in enumerate(facts.requests, 1):
        given = row["num_scheduled_tokens"]
        left = None if left is None or given is None else left - given
        lines.append(
            {
                "order": order,
                "request": row["request"],
                "wanted": row["num_wanted_tokens"],
                "given": given,
                "budget left": left,
                "computed": row["num_computed_tokens"],
                "known": row["num_known_tokens"],
                "blocks": row["num_blocks"],
                "note": row["zero_reason"] or notes.get(row["request"], ""),
            }
        )
    return lines


def let_in(facts: StepFacts) -> list[dict[str, Any]]:
    """Returns what the events hold where dense rows are not stored: who was let in, in order."""
    return [
        {
            "order": order,
            "request": event["request"],
            "given": event["num_scheduled_tokens"],
            "from the cache": event["num_hit_tokens"],
            "note": event["kind"],
        }
        for order, event in enumerate(facts.admissions(), 1)
    ]


def _notes(facts: StepFacts) -> dict[int, str]:
    notes = {event["request"]: _admission(event) for event in facts.admissions()}
    for event in facts.preemptions():
        asked = event["beneficiary"]
        if asked is not None:
            before = f"{notes[asked]}, " if asked in notes else "evicts "
            notes[asked] = f"{before}{event['request']}"
    return notes


def _admission(event: Row) -> str:
    hit = event["num_hit_tokens"]
    return f"{event['kind']}, {hit:,} from the cache" if hit else str(event["kind"])


def what_would_keep(facts: StepFacts) -> str:
    """Returns why the requests of a step are not stored, and which detail would keep them."""
    detail = facts.engine.get("detail")
    kept = "" if detail is None else f"This engine is kept at detail **{in_markdown(detail)}**. "
    return (
        f"{kept}`--detail full` (of `stepscope serve` and `collect`) keeps a row a request a "
        "step; `--detail sampled=10` of every tenth step."
    )


def waiting_line(facts: StepFacts) -> str:
    """Returns how the waiting requests divide: set aside, or behind an admission that stopped."""
    waiting, skipped = facts.step["num_waiting"], facts.step["num_skipped_waiting"]
    if not waiting:
        return "Nobody waits." if waiting == 0 else NOT_RECORDED
    if skipped is None:
        return ""
    if not skipped:
        who = "the one that waits does" if waiting == 1 else f"all {waiting:,} wait"
        return f"Nobody is set aside (skipped): {who} because admission stopped."
    if waiting == 1:
        return "The one that waits is set aside (skipped)."
    return f"{skipped:,} of {waiting:,} are set aside (skipped); the scan went on behind them."


def grouped(rows: Sequence[Mapping[str, Any]], head: int | None) -> list[dict[str, Any]]:
    """Returns waiting requests with runs of equal neighbours told in one line, the head first.

    Args:
        rows: `request`, `wait_reason`, `times`, by request.
        head: the queue's head.
    """
    first = [row for row in rows if row["request"] == head]
    lines: list[dict[str, Any]] = []
    for row in [*first, *(row for row in rows if row["request"] != head)]:
        last = lines[-1] if lines else None
        same = ("wait_reason", "times")
        if last and last["first"] != head and all(last[name] == row[name] for name in same):
            last["last"], last["num"] = row["request"], last["num"] + 1
            continue
        lines.append({"first": row["request"], "last": row["request"], "num": 1, **dict(row)})
    return lines


def who(line: Mapping[str, Any], head: int | None) -> str:
    """Returns `21 (head)`, `22 to 27`, or `22 to 27, 4 of them` where others lie between."""
    first, last, num = line["first"], line["last"], line["num"]
    if num == 1:
        return f"{first:,} (head)" if first == head else f"{first:,}"
    return f"{first:,} to {last:,}" + ("" if last - first + 1 == num else f", {num:,} of them")

"""A step in one sentence, and why its admission stopped: arithmetic in words, no metric names."""

from __future__ import annotations

from collections.abc import Sequence

from telemetry.step_facts import Row, StepFacts


def headline(facts: StepFacts) -> str:
    """Returns what happened in the step, the answer first, then its numbers."""
    if facts.preemptions():
        return _evictions(facts)
    if facts.step["num_scheduled_tokens"] is None:
        return "What was scheduled is not recorded."
    num_waiting = facts.step["num_waiting"] or 0
    num_let_in = (facts.step["num_admitted"] or 0) + (facts.step["num_resumed"] or 0)
    let_in = f", {_count(num_let_in, 'was', 'were')} let in" if num_let_in else ""
    given = _served(facts) + let_in
    if not num_waiting:
        return f"{given}; nobody waits."
    return f"{given}; {stop_sentence(facts)}, so {_count(num_waiting, 'request waits', 'wait')}."


def _served(facts: StepFacts) -> str:
    tokens = facts.step["num_scheduled_tokens"]
    if not tokens:
        return "Nothing was scheduled"
    prefills, decodes = facts.step["num_prefill_requests"], facts.step["num_decode_requests"]
    if prefills is None or decodes is None:
        return f"{_count(tokens, 'token was', 'tokens were')} scheduled"
    requests = _count(prefills + decodes, "request", "requests")
    return f"{requests} got {_count(tokens, 'token', 'tokens')}"


def _evictions(facts: StepFacts) -> str:
    evictions = facts.preemptions()
    if all(event["cause"] == "cache_reset" for event in evictions):
        return f"A reset of the cache evicted {_count(len(evictions), 'request', 'requests')}."
    return _from_dense_rows(facts, evictions) or _from_events(evictions)


def _from_dense_rows(facts: StepFacts, evictions: Sequence[Row]) -> str | None:
    """Returns who needed blocks, how many were free, who was fed; None where that is not stored."""
    block_size, free_after = facts.engine.get("block_size"), facts.num_blocks_free
    held = {row["request"]: row["num_blocks"] for row in facts.requests_before}
    losses = [event["num_computed_tokens_lost"] for event in evictions]
    freed = [event["num_blocks_freed"] for event in evictions]
    if not block_size or free_after is None or None in (*held.values(), *losses, *freed):
        return None
    fed = {
        row["request"]: row["num_blocks"] - held[row["request"]]
        for row in facts.requests
        if row["request"] in held and (row["num_blocks"] or 0) > held[row["request"]]
    }
    if not fed or any(event["request"] not in held for event in evictions):
        return None
    num_free = free_after + sum(fed.values()) - sum(freed)
    num_short = sum(lost % block_size == 0 for lost in losses)
    return _arithmetic(len(fed), sum(fed.values()), num_short, len(evictions), num_free)


def _arithmetic(
    num_fed: int, num_given: int, num_short: int, num_evicted: int, num_free: int
) -> str | None:
    """Returns the sum in words: `num_short` of the evicted needed one more block themselves."""
    if num_free < 0:
        return None
    asking, blocks = num_fed + num_short, num_given + num_short
    each = "one more block each" if blocks == asking else f"{blocks:,} more blocks"
    evicted = _count(num_evicted, "was", "were")
    return (
        f"{_count(asking, 'request', 'requests')} needed {each}, {_count(num_free, 'was', 'were')} "
        f"free: {evicted} evicted to feed {'the other ' if num_short else ''}{num_fed:,}."
    )


def _from_events(evictions: Sequence[Row]) -> str:
    first = evictions[0]
    asked = {event["beneficiary"]: event["num_blocks_needed"] for event in reversed(evictions)}
    free = first["num_blocks_free_before"]
    needs = [n for n in asked.values() if n is not None]
    need, spare = _blocks(sum(needs) if needs else None), _free(free)
    if len(asked) == 1:
        asking, victims = first["beneficiary"], [event["request"] for event in evictions]
        if victims == [asking]:
            return f"Request {asking} needed {need}, {spare}: it evicted itself."
        paid = f"request {victims[0]} was" if len(victims) == 1 else f"{len(victims):,} were"
        return f"Request {asking} needed {need}, {spare}: {paid} evicted."
    return (
        f"{len(asked):,} requests needed {need}, {spare} at the first: "
        f"{_count(len(evictions), 'was', 'were')} evicted."
    )


def stop_sentence(facts: StepFacts) -> str:
    """Returns why admission ended, with the number that decided, to be read inside a sentence."""
    step, engine = facts.step, facts.engine
    head = "the head" if step["head_request"] is None else f"request {step['head_request']}"
    need, free = _blocks(step["head_blocks_needed"]), _free(facts.num_blocks_free)
    budget, running = _number(step["token_budget"]), _number(step["num_running"])
    match step["stop_name"]:
        case "queue_empty" if step["num_waiting"]:
            return "all who wait are set aside"
        case "queue_empty":
            return "nobody was left to admit"
        case "token_budget":
            return f"the budget of {budget} tokens was spent"
        case "input_budget":
            return "the room for inputs was used up"
        case "max_num_seqs":
            return f"{running} of {_number(engine.get('max_num_seqs'))} slots were taken"
        case "max_num_active_seqs":
            return (
                f"{running} of {_number(engine.get('max_num_active_seqs'))} active slots were taken"
            )
        case "kv_blocks_chunk":
            return f"the first chunk of {head} needed {need}, {free}"
        case "kv_blocks_whole_prompt":
            return f"{head} needed {need} for all its tokens, {free}"
        case "kv_watermark":
            return f"{head} needed {need} beside the watermark's, {free}"
        case "kv_reserved_for_loads":
            return f"{head} needed {need}, {free} but kept for loads"
        case "loaded_needs_blocks":
            return f"{head}, loaded already, needed {need} more, {free}"
        case "preempted_this_step":
            return "a step that preempts admits nobody"
        case "chunked_prefill_disabled":
            return f"{head} did not fit into the budget whole, and chunked prefill is off"
        case reason:
            return _OTHER_STOPS.get(reason or "", "why is not recorded")


_OTHER_STOPS = {
    "encoder_budget": "the encoder's budget was spent",
    "encoder_cache": "the encoder's cache had no room",
    "draft_padding": "padding for drafts did not fit",
    "prefill_throttled": "prefills were throttled",
    "block_alignment": "no whole block fitted into the budget",
    "prefill_lookahead": "the look-ahead of a prefill did not fit",
    "paused_new": "new requests were paused",
    "paused_all": "the engine was paused",
}


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _blocks(number: int | None) -> str:
    return "- blocks" if number is None else _count(number, "block", "blocks")


def _free(number: int | None) -> str:
    return f"{_number(number)} {'was' if number == 1 else 'were'} free"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"

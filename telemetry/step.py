"""One step worked out by hand: who was served in which order, who was evicted for whom, and why.

Rows in, text out: at most `WIDTH` columns, ASCII, no colour. `0` was counted, `-` was not measured.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from telemetry.step_facts import PHASES, Row, StepFacts
from telemetry.step_headline import headline, stop_sentence

WIDTH = 100
"""Columns of a line, at most."""

_LONGEST_NAME = 40


def explain_step(facts: StepFacts, *, max_rows: int = 200) -> str:
    """Returns the step as a page of text; a table cut at `max_rows` says so."""
    sections = [
        _title(facts),
        _evictions(facts, max_rows),
        _batch(facts, max_rows),
        _times(facts),
        _state(facts),
        _waiting(facts),
        _others(facts),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _title(facts: StepFacts) -> list[str]:
    step = facts.step
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=step["ts"] // 1000)
    took = None if step["updated_ts"] is None else step["updated_ts"] - step["ts"]
    name = _plain(facts.engine.get("model"))
    lines = [
        f"step {step['step']:,} of engine {step['engine']:016x} {name}",
        "",
        *textwrap.wrap(headline(facts), WIDTH),
        f"  {when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d} UTC, took {_ms(took)}",
        *_wrapped(f"admission stopped: {step['stop_name'] or '-'} ({stop_sentence(facts)})"),
    ]
    if step["num_repeats"] > 1:
        last = step["step"] + step["num_repeats"] - 1
        asked = "" if facts.asked == step["step"] else f"; step {facts.asked:,} is one of them"
        lines += _wrapped(f"steps {step['step']:,} to {last:,} were equal, told once{asked}")
    return lines


def _evictions(facts: StepFacts, max_rows: int) -> list[str]:
    """One line an eviction: who asked for what, who paid, what it brought."""
    rows = [
        (
            number,
            event["beneficiary"],
            event["num_blocks_needed"],
            event["num_blocks_free_before"],
            event["request"],
            event["num_blocks_freed"],
            event["num_computed_tokens_lost"],
            event["num_withdrawn_tokens"],
            f"{event['cause'] or '-'}, {event['victim_rule'] or '-'}{_in_vain(event)}",
        )
        for number, event in enumerate(facts.preemptions(), 1)
    ]
    names = (
        "#",
        "who asked",
        "needs",
        "free",
        "evicts",
        "blocks freed",
        "tokens lost",
        "given back",
        "why",
    )
    return _table(f"evictions, in order ({len(rows):,})", names, rows, max_rows)


def _in_vain(event: Row) -> str:
    return ", in vain" if event["beneficiary_allocated"] == 0 else ""


def _batch(facts: StepFacts, max_rows: int) -> list[str]:
    """One line a request in the order the scheduler served it, with the budget it left."""
    if not facts.requests:
        return _admissions(facts, max_rows)
    notes = _notes(facts)
    left = facts.step["token_budget"]
    rows = []
    for order, row in enumerate(facts.requests, 1):
        given = row["num_scheduled_tokens"]
        left = None if left is None or given is None else left - given
        note = row["zero_reason"] or notes.get(row["request"], "")
        rows.append(
            (
                order,
                row["request"],
                row["num_wanted_tokens"],
                given,
                left,
                row["num_computed_tokens"],
                row["num_known_tokens"],
                row["num_blocks"],
                note,
            )
        )
    names = (
        "order",
        "request",
        "wanted",
        "given",
        "budget left",
        "computed",
        "known",
        "blocks",
        "",
    )
    budget = f"the batch: a budget of {_number(facts.step['token_budget'])} tokens"
    return _table(budget, names, rows, max_rows)


def _admissions(facts: StepFacts, max_rows: int) -> list[str]:
    """What the events hold where dense rows are not stored."""
    rows = [
        (
            order,
            event["request"],
            event["num_scheduled_tokens"],
            event["num_hit_tokens"],
            event["kind"],
        )
        for order, event in enumerate(facts.admissions(), 1)
    ]
    table = _table("let in, in order", ("order", "request", "given", "hit", ""), rows, max_rows)
    missing = (
        "not stored for this step: the order of the requests that ran, what each wanted, what it "
        f"was given and the budget left.{_kept(facts)} --detail full (of `serve` and `collect`) "
        "keeps them."
    )
    return [*table, *([""] if table else []), *textwrap.wrap(missing, WIDTH)]


def _kept(facts: StepFacts) -> str:
    """Says at which detail the engine is kept, where that is known."""
    detail = facts.engine.get("detail")
    return "" if detail is None else f" This engine is kept with --detail {_plain(detail)};"


def _notes(facts: StepFacts) -> dict[int, str]:
    """Returns what happened with a request in the step, by request."""
    notes = {event["request"]: _admission(event) for event in facts.admissions()}
    for event in facts.preemptions():
        asked = event["beneficiary"]
        before = f"{notes[asked]}, " if asked in notes else "evicts "
        notes[asked] = f"{before}{event['request']}"
    return notes


def _admission(event: Row) -> str:
    hit = event["num_hit_tokens"]
    return f"{event['kind']}, {hit:,} from the cache" if hit else str(event["kind"])


def _times(facts: StepFacts) -> list[str]:
    step = facts.step
    known = [(name, step[f"{name}_ns"]) for name in PHASES if step[f"{name}_ns"] is not None]
    if not known:
        return []
    took = None if step["updated_ts"] is None else step["updated_ts"] - step["ts"]
    rest = None if took is None else took - sum(ns for _, ns in known)
    if rest is not None and rest > 0:
        known.append(("between them", rest))
    return [
        f"where the {_ms(took)} went",
        *_wrapped("   ".join(f"{name} {_ms(ns)}".replace(" ", "\0") for name, ns in known)),
    ]


def _state(facts: StepFacts) -> list[str]:
    step, engine = facts.step, facts.engine
    free, pool = facts.num_blocks_free, engine.get("num_usable_blocks")
    used = None if free is None or pool is None else pool - free
    tokens = (
        f"{_number(step['num_scheduled_tokens'])} of {_number(step['token_budget'])}: "
        f"{_number(step['num_prefill_tokens'])} prefill, "
        f"{_number(step['num_decode_tokens'])} decode, "
        f"{_number(step['num_recomputed_tokens'])} computed before"
    )
    if step["num_placed"]:
        tokens += f", {_number(step['num_placed'])} drafts ({_number(step['num_accepted'])} right)"
    let_in = ", ".join(_number(step[n]) for n in ("num_admitted", "num_resumed", "num_preempted"))
    lines = [
        (
            "requests running",
            f"{_number(step['num_running'])} of {_number(engine.get('max_num_seqs'))}",
        ),
        ("tokens scheduled", tokens),
        ("KV blocks used", f"{_number(used)} of {_number(pool)}"),
        (
            "free blocks",
            f"{_number(free)}, {_number(step['num_blocks_free_cached'])} of them cached",
        ),
        ("held by waiting", _number(step["num_blocks_waiting"])),
        ("admitted, resumed, evicted", let_in),
    ]
    return ["once it was scheduled", *(f"  {name:<28}{text}" for name, text in lines)]


def _waiting(facts: StepFacts) -> list[str]:
    step = facts.step
    lines = [f"waiting after this step: {_number(step['num_waiting'])}"]
    for row in facts.waiting:
        reason = row["wait_reason"] or "-"
        head = f"request {step['head_request']}, the head" if reason == step["stop_name"] else ""
        lines.append(f"  {reason:<28}{row['num_requests']:>6,}  {head}".rstrip())
    return lines


def _others(facts: StepFacts) -> list[str]:
    if not facts.other_engines:
        return []
    listed = ", ".join(f"{engine:016x}" for engine in facts.other_engines[:3])
    more = len(facts.other_engines) - 3
    tail = f" and {more:,} more" if more > 0 else ""
    return _wrapped(f"step {facts.asked:,} is also told of {listed}{tail}: --engine", indent="")


def _table(
    title: str, names: Sequence[str], rows: Sequence[Sequence[Any]], max_rows: int
) -> list[str]:
    """Returns a titled table: all columns to the right but the last, which is text."""
    if not rows:
        return []
    cells = [[_cell(value) for value in row] for row in rows[:max_rows]]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]

    def line(values: Iterable[str]) -> str:
        *numbers, text = values
        padded = [value.rjust(width) for value, width in zip(numbers, widths, strict=False)]
        return ("  " + "  ".join([*padded, text])).rstrip()[:WIDTH]

    cut = len(rows) - len(cells)
    note = [f"  showing {len(cells):,} of {len(rows):,}: --max-rows"] if cut else []
    return [title, line(names), *map(line, cells), *note]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else _number(value)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _ms(ns: int | None) -> str:
    """Returns a time in milliseconds, three digits that matter."""
    if ns is None:
        return "-"
    ms = ns / 1e6
    decimals = 0 if ms >= 100 else 1 if ms >= 10 else 2 if ms >= 0.1 else 3
    return f"{ms:,.{decimals}f} ms"


def _plain(text: str | None) -> str:
    """Returns a name from outside as printable ASCII, of bounded length."""
    if text is None:
        return "-"
    shown = text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= _LONGEST_NAME else shown[: _LONGEST_NAME - 3] + "..."


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    """Returns lines of at most `WIDTH` columns; a NUL is a space where no line may end."""
    lines = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
    return [line.replace("\0", " ") for line in lines]

"""The sentences of the page that explains preemptions: headline, account, cost, changes."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.accounting import Accounting, TokenLoss
from diagnose.changes import Explanation
from diagnose.reading import NS
from diagnose.words import NOT_MEASURED, count, percent, plural

CAUSE_WORDS = {
    "kv_full": "because the KV pool was full",
    "priority": "because more urgent requests needed the blocks",
    "cache_reset": "because the prefix cache was reset",
}
MAJORITY = 0.8
"""Share of the preemptions from which one kind of payer is named in the headline."""


def headline(account: Accounting, *, is_partial: bool = False) -> str:
    """Returns how many, why, and who paid, in one or two sentences.

    Where steps are missing and the engine's counter does not vouch for it, the count is a lower
    bound.
    """
    total = account.num_rows
    if not total:
        if account.unattributed:
            return f"{plural(account.unattributed, 'preemption')}, none of them in the record."
        return "Nobody was preempted in this window."
    causes = {
        "kv_full": account.num_kv_full,
        "priority": account.num_priority,
        "cache_reset": account.num_cache_reset,
    }
    main = max(causes, key=lambda cause: causes[cause])
    share = "all" if causes[main] == total else f"{causes[main]:,}"
    bound = "≥ " if is_partial and account.equals_counter is not True else ""
    first = f"{bound}{plural(total, 'preemption')}, {share} {CAUSE_WORDS[main]}."
    if total == 1:
        first = f"{bound}1 preemption, {CAUSE_WORDS[main]}."
    return f"{first} {_who_paid(account)}".strip()


def _who_paid(account: Accounting) -> str:
    total = account.num_newer_paid + account.num_itself_paid + account.num_older_paid
    if not total:
        return ""
    for number, sentence in (
        (account.num_newer_paid, "Newer requests paid for older ones."),
        (account.num_older_paid, "Older requests paid for newer ones."),
        (account.num_itself_paid, "Requests gave up their own blocks."),
    ):
        if number >= MAJORITY * total:
            return sentence
    return (
        f"Newer requests paid {account.num_newer_paid:,} times, "
        f"older ones {account.num_older_paid:,} times."
    )


def account_line(account: Accounting) -> str:
    """Returns the sum of causes in markdown; nothing from a log but numbers is in it."""
    parts = [
        (account.num_kv_full, "kv_full"),
        (account.num_priority, "priority"),
        (account.num_cache_reset, "cache_reset"),
    ]
    if account.num_cause_unknown:
        parts.append((account.num_cause_unknown, "of unrecorded cause"))
    if account.unattributed is not None and account.unattributed >= 0:
        parts.append((account.unattributed, "unattributed"))
    total = account.num_rows if account.counter is None else max(account.counter, account.num_rows)
    summands = " + ".join(
        f"**{number:,} {name.replace('_', chr(92) + '_')}**"
        if number
        else f"0 {name.replace('_', chr(92) + '_')}"
        for number, name in parts
    )
    return f"{total:,} = {summands} &nbsp; {_counter(account)}"


def _counter(account: Accounting) -> str:
    missing = account.unattributed
    if missing is None:
        return f":gray[{NOT_MEASURED} the engine's own counter is not recorded]"
    if missing == 0:
        return f":green[✓ equals the engine's own counter, {account.counter:,}]"
    if missing > 0:
        return f":orange[▲ {missing:,} unattributed: the engine counted {account.counter:,}]"
    return (
        f":orange[▲ {-missing:,} more than the engine's counter, {account.counter:,}, "
        "which lags by up to 1 s]"
    )


def cost_parts(loss: TokenLoss) -> list[tuple[str, int]]:
    """Returns where the lost tokens went, in words, leaving out what is 0 or not recorded."""
    parts = (
        ("computed a second time", loss.num_recomputed),
        ("back from the cache", loss.num_regained_from_prefix_cache),
        ("back from a connector", loss.num_regained_from_connector),
        ("lost again before they were done", loss.num_lost_again),
        ("never computed again", loss.num_never_resumed),
        ("not computed again yet", loss.num_pending),
    )
    return [(said, tokens) for said, tokens in parts if tokens]


def cost_line(account: Accounting) -> str:
    """Returns what the recomputed tokens and the time out were a part of."""
    lines = []
    work = account.work
    if work.recomputed_ratio is not None:
        lines.append(
            f"{count(work.num_recomputed)} is {percent(work.recomputed_ratio)} of the "
            f"{count(work.num_scheduled)} tokens scheduled."
        )
    if account.evicted_ns is not None and account.request_ns:
        out, whole = account.evicted_ns / NS, account.request_ns / NS
        lines.append(
            f"The {plural(account.num_affected, 'victim')} spent {out:,.1f} of {whole:,.1f} "
            f"request-seconds ({100 * out / whole:.0f} %) evicted and waiting."
        )
    if account.loss.identity_holds is False:
        lines.append("▲ The parts do not add up to what was lost.")
    return " ".join(lines)


OTHERS = "the worst one is explained here; choose another's window for its own cause"


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A candidate for the cause: its mark, its number, the preemptions charged to it."""

    mark: str
    name: str
    number: str
    num_preemptions: int


_MARKS = {"confirmed": "▲", "rejected": "✓", "not_measured": NOT_MEASURED}


def change_rows(
    explanation: Explanation, num_preemptions: int, num_explained: int
) -> list[ChangeRow]:
    """Returns every candidate and what was charged to it; the column sums to the total.

    Args:
        explanation: of the worst episode.
        num_preemptions: all of the window.
        num_explained: those of that episode.
    """
    rows = [
        ChangeRow(
            _MARKS[change.status],
            change.name[:1].upper() + change.name[1:],
            change.number,
            change.num_preemptions,
        )
        for change in explanation.changes
    ]
    left = num_preemptions - sum(row.num_preemptions for row in rows)
    if explanation.shares and explanation.cause.kind not in ("setting", "undetermined"):
        rest = min(left, max(num_explained - (num_preemptions - left), 0))
        rows.append(ChangeRow(NOT_MEASURED, "Unexplained", "left without any of them", rest))
        left -= rest
    if explanation.cause.kind == "setting":
        charged = min(left, num_explained)
        rows.insert(0, ChangeRow("▲", "Setting", explanation.cause.sentence, charged))
        left -= charged
    if explanation.cause.kind == "undetermined":
        charged = min(left, num_explained)
        rows.append(ChangeRow("▲", "Undetermined", explanation.cause.sentence, charged))
        left -= charged
    else:
        rows.append(ChangeRow("✓", "Undetermined", "", 0))
    if left:
        rows.append(ChangeRow(NOT_MEASURED, "Other episodes", OTHERS, left))
    return sorted(rows, key=lambda row: -row.num_preemptions)

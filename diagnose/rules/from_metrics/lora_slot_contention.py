"""lora-slot-contention, from scrapes alone.

Scrapes at which as many adapters run as `max_lora` allows and another one waits
(`lora_requests_info`): in at least half of those that tell of adapters, three or more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from diagnose.advice import VERIFY
from diagnose.alerts.alert import DEFERRED, Alert
from diagnose.finding import (
    Action,
    Cause,
    Evidence,
    Finding,
    Healthy,
    Impact,
    RuleVerdict,
    Severity,
)
from diagnose.rule import Context, Earlier
from diagnose.rules.lora_slot_contention import ID, RULE
from diagnose.saying import not_measured
from diagnose.scrapes.metric_facts import MIN_SCRAPES
from diagnose.scrapes.metric_finding import facts_of, found, too_few
from diagnose.scrapes.metric_finding import span_of_window as whole
from diagnose.words import percent, plural

MIN_SHARE = 0.5
"""Share of the scrapes at which an adapter waits for a slot. Starting value."""
SERIES = "vllm:lora_requests_info"

SQL = """
SELECT ts, arg_max(labels, value) AS labels FROM samples
WHERE {where} AND metric IN ('vllm:lora_requests_info', 'ray_vllm_lora_requests_info')
GROUP BY ts ORDER BY ts
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """The adapters of one scrape. `slots` is `None` where the series does not say."""

    running: frozenset[str]
    waiting: frozenset[str]
    slots: int | None

    @property
    def is_contended(self) -> bool:
        """Whether an adapter waits and every slot is taken by another."""
        full = self.slots is not None and len(self.running) >= self.slots
        return full and bool(self.waiting - self.running)


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where adapters wait for slots that others hold."""
    if (few := too_few(context, ID)) is not None:
        return few
    told = [_adapters(row) for row in context.rows(SQL)]
    if not told:
        return not_measured(ID, (SERIES,), "no adapter is in use, or it is not scraped")
    contended = [each for each in told if each.is_contended]
    share = len(contended) / len(told)
    if len(contended) < MIN_SCRAPES or share < MIN_SHARE:
        number = f"an adapter waited for a slot in {len(contended):,} of {len(told):,} scrapes"
        return Healthy(rule=ID, name="adapters", number=number)
    return _finding(context, contended[-1], len(told), share)


def _adapters(row: dict[str, Any]) -> Adapters:
    labels = json.loads(row["labels"] or "{}")
    slots = str(labels.get("max_lora", ""))
    return Adapters(
        running=_names(labels.get("running_lora_adapters")),
        waiting=_names(labels.get("waiting_lora_adapters")),
        slots=int(slots) if slots.isdecimal() else None,
    )


def _names(text: object) -> frozenset[str]:
    return frozenset(name.strip() for name in str(text or "").split(",") if name.strip())


def _finding(context: Context, adapters: Adapters, num_told: int, share: float) -> Finding:
    facts, slots = facts_of(context), adapters.slots or 0
    waiting = len(adapters.waiting - adapters.running)
    return found(
        context,
        RULE,
        severity=Severity.high,
        span=whole(facts),
        sentence=f"All {slots} adapter slots are taken; {plural(waiting, 'other adapter')} waited "
        f"in {percent(share)} of the scrapes",
        symptom=f"{plural(waiting, 'adapter')} waiting for {slots} slots",
        cause=Cause(
            kind="setting", sentence=f"setting: max_loras is {slots}, more adapters are asked for"
        ),
        confidence=("high", "the engine names the adapters that run and wait"),
        evidence=(
            Evidence(
                name="scrapes at which an adapter waits for a slot",
                value=share,
                unit="ratio",
                threshold=MIN_SHARE,
                n=num_told,
                sql=context.scope.fill(SQL),
            ),
        ),
        impact=Impact(
            cost=(f"requests of {plural(waiting, 'adapter')} wait",),
            numbers=(("num_waiting_adapters", waiting),),
        ),
        actions=(
            Action(
                what="give every adapter in use a slot",
                flag="--max-loras",
                old=str(slots),
                new=str(slots + waiting),
                applies="restart",
                trade_off="each slot takes device memory from the KV pool",
                verify=VERIFY,
                revert=f"--max-loras {slots}",
            ),
        ),
        missing=("wait_reasons.wait_reason",),
    )


MOST_SLOTS = 16
"""Up to so many slots PromQL is told to count the names in a label. Starting value."""
_HELD = "\n    or ".join(
    f'{SERIES}{{max_lora="{slots}",waiting_lora_adapters=~".+",'
    f'running_lora_adapters=~"[^,]+(,[^,]+){{{slots - 1}}}"}}'
    for slots in range(1, MOST_SLOTS + 1)
)
_NO_ENGINE = "sum without (engine, model_name)"

ALERT = Alert(
    rule=ID,
    severity=Severity.high,
    hold="1m",
    expr=f"""
{_NO_ENGINE} ({DEFERRED}) > 0
  and ignoring (max_lora, running_lora_adapters, waiting_lora_adapters) (
    (
    {_HELD}
    ) == ignoring (max_lora, running_lora_adapters, waiting_lora_adapters) group_left
      max without (max_lora, running_lora_adapters, waiting_lora_adapters) ({SERIES})
  )
""",
    summary="Adapters wait for slots that other adapters hold",
    description="{{ $value }} requests are set aside while all adapter slots are taken and "
    "adapters wait. {{ $labels.instance }}",
    queries=("scraped-load", "adapter-waits"),
)

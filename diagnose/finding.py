"""What a rule may say: found, healthy, not measured, or silenced by another.

All of it is frozen and free of any log, so that it can be stored, compared and printed. A number
never stands alone: it carries its unit, the number it was judged against, how many it was counted
over, where it came from and the SQL that gives it again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Number = int | float
Level = Literal["low", "medium", "high"]
Provenance = Literal["measured", "derived", "inferred"]
Applies = Literal["live", "restart", "client"]
"""How an action takes effect: at once, after a restart, or at whoever sends the requests."""


class Severity(IntEnum):
    """How bad it is; larger is worse."""

    info = 1
    medium = 2
    high = 3
    critical = 4


CauseKind = Literal[
    "burst_of_arrivals",
    "more_arrivals",
    "longer_prompts",
    "longer_outputs",
    "smaller_pool",
    "config_change",
    "priority_churn",
    "stuck_loads",
    "cache_reset",
    "oversized_request",
    "more_adapters",
    "slow_grammars",
    "new_traffic",
    "peer",
    "code",
    "setting",
    "undetermined",
]
"""The changes of state and settings that may be named as a cause; a symptom never is one.

`new_traffic`: requests that differ from those before (their lengths apart). `peer`: another
process, such as the other side of a transfer. `code`: a fault of the engine's own version.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure the finding is of its cause, and why."""

    level: Level
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number that speaks for a finding.

    `baseline` is the same number when things were well, `threshold` what it was judged against
    (with its own words in `threshold_text` where it is no bare number); both `None` where there is
    none. `value` is `None` where it could not be measured.
    """

    name: str
    value: Number | None
    unit: str
    sql: str
    provenance: Provenance = "measured"
    n: int | None = None
    threshold: Number | None = None
    threshold_text: str | None = None
    baseline: Number | None = None
    window: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A change of state or a setting; or `undetermined`, and then the sentence says why."""

    kind: CauseKind
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An alternative that was looked at, and the number that spoke against it."""

    kind: CauseKind
    name: str
    number: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of a total one cause accounts for; `kind` is `None` for the rest, unexplained.

    The shares of a finding add up to the total that they divide: `ratio` to 1, `num` to the count.
    `num` need not be whole: a share is worked out by taking changes away, in every order.
    """

    kind: CauseKind | None
    name: str
    num: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One step of how it came about: what changed, what failed first, whom it hurt."""

    stage: Literal["cause", "first_failure", "impact"]
    ts: int | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What an action would do to one quantity, by two replays of the load.

    `before` is of the replay under the recorded settings, `after` of the one with the action;
    `error` is how far the first is off the record, as a share of it. Where that is too far, or not
    known (`None`), `after` is `None`: withheld. `is_exact` is false where only the direction
    counts.
    """

    name: str
    label: str
    unit: str
    before: float | None
    after: float | None
    error: float | None
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do.

    `flag` is `None` where no setting helps, and `what` says it all. `predicted` is empty where no
    replay was made; a finding's `prediction` says why.
    """

    what: str
    flag: str | None
    old: str | None
    new: str | None
    applies: Applies
    trade_off: str
    verify: str
    revert: str
    predicted: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """A request that paid."""

    request: int
    request_id: str | None
    times: int
    num_tokens_lost: int | None
    num_tokens_recomputed: int | None
    evicted_ns: int | None
    waited_ns: int | None = None
    """How long it got nothing, where it was not for an eviction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When it was so: nanoseconds since the Unix epoch; `cleared_ts` is `None` while it is open."""

    opened_ts: int
    cleared_ts: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """What it cost, in lines for people and in numbers for machines."""

    cost: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    numbers: tuple[tuple[str, Number | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem, its cause, what speaks for it and what to do."""

    id: str
    rule: str
    rule_version: int
    severity: Severity
    confidence: Confidence
    span: Span
    engine: int
    sentence: str
    """The answer in one sentence: cause before symptom."""
    symptom: str
    cause: Cause
    shares: tuple[Share, ...] = ()
    """What each change accounts for; empty where that was not worked out."""
    shared_ts: int | None = None
    """Up to which moment an analyst replayed for shares that it stored; `None`: not stored ones."""
    chain: tuple[Link, ...] = ()
    """From the cause to the impact; empty where its moments are not known."""
    rejected: tuple[Rejected, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    impact: Impact = Impact()
    affected: tuple[Affected, ...] = ()
    num_affected: int | None = None
    actions: tuple[Action, ...] = ()
    prediction: str = ""
    """How the effects of the actions were predicted, or why they were not."""
    missing: tuple[str, ...] = ()
    data_quality: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it still was so at the end of the window."""
        return self.span.cleared_ts is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """Looked at and well, with the number that says so.

    `is_used` is false where the engine has nothing of the kind, such as a connector.
    """

    rule: str
    name: str
    number: str
    sentence: str = ""
    is_used: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured:
    """Not judged: `missing` names each signal as its source spells it, or `table.column`."""

    rule: str
    missing: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """Would have been said, but another rule or guard (`by`) explains it, with its number.

    `rule` is `None` for a guard that only annotates.
    """

    rule: str | None
    by: str
    number: str


RuleVerdict = Finding | Healthy | NotMeasured | Suppressed
"""What one rule says of one engine; match it to the end with `assert_never`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The one answer for an engine. `severity` is `None` where nothing is wrong."""

    rule: str
    sentence: str
    severity: Severity | None = None


NO_FAULT = "no-scheduler-fault"
UNDETERMINED = "undetermined"
NOT_ENOUGH_DATA = "not-enough-data"


def finding_id(prefix: str, engine: int) -> str:
    """Returns the id of a problem of an engine: the same in whatever window it is looked at.

    When it opened is no part of it: that moment moves as a window slides and an episode grows. Its
    openings are told apart by their times (`diagnose.life`). Eight digits, as a log may hold
    thousands of starts of engines.
    """
    digest = hashlib.sha256(f"{prefix}/{engine}".encode()).hexdigest()
    return f"{prefix}-{digest[:8]}"

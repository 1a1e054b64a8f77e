"""Two sides put beside each other: verdicts, findings, settings, quantities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from diagnose.causes.settings_diff import ChangedSetting, changed_settings
from diagnose.diff import scraped
from diagnose.diff.noise import Measured, Outcome, judge, value_of
from diagnose.diff.recorded import Recorded, is_reason, waits_for_nothing
from diagnose.diff.side import Side
from diagnose.finding import Finding

GROUPS = ("traffic", "preemptions", "token work", "waiting", "latency", "throughput", "memory")
"""In this order they are shown: `traffic` is what came in, the rest what became of it."""

Fate = Literal["new", "gone", "same", "unknown"]
"""What became of a finding from A to B; unknown where the other side could not judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingChange:
    """A rule that found something on either side; `why` says what stands in its place."""

    rule: str
    fate: Fate
    a: Finding | None
    b: Finding | None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number of both sides. `None` is not measured; `low` and `high` bound the difference."""

    group: str
    name: str
    unit: str
    a: float | None
    b: float | None
    num_a: int | None
    num_b: int | None
    outcome: Outcome
    low: float | None = None
    high: float | None = None

    @property
    def change_ratio(self) -> float | None:
        """By what share of A it changed; None where A is 0 or a side is not measured."""
        if self.a is None or self.b is None or not self.a:
            return None
        return self.b / self.a - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What two windows have in common and what not."""

    a: Side
    b: Side
    findings: tuple[FindingChange, ...]
    settings: tuple[ChangedSetting, ...]
    settings_of_one_side: tuple[ChangedSetting, ...]
    """Settings that only one side tells: whether they differ is not known."""
    quantities: tuple[Quantity, ...]

    @property
    def beyond_noise(self) -> tuple[Quantity, ...]:
        """The quantities that differ by more than chance."""
        return tuple(each for each in self.quantities if each.outcome == "beyond_noise")

    @property
    def has_enough_data(self) -> bool:
        """Whether anything could be compared."""
        known = ("beyond_noise", "within_noise")
        return any(each.outcome in known for each in self.quantities)


def compare(a: Side, b: Side) -> Diff:
    """Returns how B differs from A."""
    settings = _settings(a, b)
    return Diff(
        a=a,
        b=b,
        findings=_findings(a, b),
        settings=tuple(each for each in settings if _is_known(each, a, b)),
        settings_of_one_side=tuple(each for each in settings if not _is_known(each, a, b)),
        quantities=tuple(_quantities(a, b)),
    )


def _findings(a: Side, b: Side) -> tuple[FindingChange, ...]:
    found = [*b.diagnosis.findings, *a.diagnosis.findings]
    rules = dict.fromkeys(finding.rule for finding in found)
    changes = [_change(rule, a, b) for rule in rules]
    order: dict[Fate, int] = {"new": 0, "unknown": 1, "gone": 2, "same": 3}
    return tuple(sorted(changes, key=lambda change: order[change.fate]))


def _change(rule: str, a: Side, b: Side) -> FindingChange:
    ours, theirs = a.finding(rule), b.finding(rule)
    if ours is not None and theirs is not None:
        return FindingChange(rule=rule, fate="same", a=ours, b=theirs)
    missing_side = a if ours is None else b
    is_known, why = _instead(missing_side, rule)
    fate: Fate = "unknown" if not is_known else "new" if ours is None else "gone"
    return FindingChange(rule=rule, fate=fate, a=ours, b=theirs, why=why)


def _instead(side: Side, rule: str) -> tuple[bool, str | None]:
    """Returns whether a side could judge a rule, and what it says instead of a finding."""
    engine = side.diagnosis
    for healthy in engine.healthy:
        if healthy.rule == rule:
            return True, f"{side.name}: {healthy.number}"
    for silenced in engine.suppressed:
        if silenced.rule == rule:
            return True, f"{side.name}: explained by {silenced.by}"
    for unknown in engine.not_measured:
        if unknown.rule == rule:
            return False, f"{side.name}: not measured, {unknown.why}"
    return False, f"{side.name}: not judged"


def _settings(a: Side, b: Side) -> list[ChangedSetting]:
    """Returns all that is not the same; where a side does not tell a setting, it is `None`."""
    ours, theirs = a.diagnosis.settings, b.diagnosis.settings
    apart: list[tuple[str, Any, Any]] = [
        ("KV blocks", ours.num_usable_blocks, theirs.num_usable_blocks),
        ("source", ours.source, theirs.source),
        ("device", ours.device, theirs.device),
    ]
    own = [ChangedSetting(name=name, old=x, new=y) for name, x, y in apart if x != y]
    return [*own, *changed_settings(ours, theirs)]


def _is_known(setting: ChangedSetting, a: Side, b: Side) -> bool:
    """Whether both sides tell a setting; of a whole configuration, what is not there is unset."""
    whole = a.diagnosis.settings.settings and b.diagnosis.settings.settings
    return bool(whole) or (setting.old is not None and setting.new is not None)


Name = tuple[str, str, str]


def _quantities(a: Side, b: Side) -> list[Quantity]:
    ours, theirs = _measured(a), _measured(b)
    names = sorted(dict.fromkeys((*ours, *theirs)), key=lambda name: GROUPS.index(name[0]))
    for side, measured in ((a, ours), (b, theirs)):
        measured |= {name: waits_for_nothing(side) for name in names if _lacks(measured, name)}
    shown = (_quantity(name, ours.get(name), theirs.get(name)) for name in names)
    return [quantity for quantity in shown if _is_told(quantity)]


def _lacks(measured: dict[Name, Measured | None], name: Name) -> bool:
    return is_reason(name) and name not in measured


def _measured(side: Side) -> dict[Name, Measured | None]:
    facts = side.diagnosis.metrics
    if facts is not None:
        return scraped.quantities(side, facts) if facts.source is not None else {}
    return Recorded(side).quantities()


def _quantity(name: Name, ours: Measured | None, theirs: Measured | None) -> Quantity:
    group, words, unit = name
    judged = judge(ours, theirs)
    return Quantity(
        group=group,
        name=words,
        unit=unit,
        a=None if ours is None else value_of(ours),
        b=None if theirs is None else value_of(theirs),
        num_a=None if ours is None else ours.n,
        num_b=None if theirs is None else theirs.n,
        outcome=judged.outcome,
        low=judged.low,
        high=judged.high,
    )


def _is_told(quantity: Quantity) -> bool:
    """Whether a quantity says anything: not where neither side has it, or both have none of it."""
    return (quantity.a, quantity.b) not in ((None, None), (0, 0))

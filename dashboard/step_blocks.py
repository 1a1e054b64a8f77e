"""Who held which KV blocks in a step: kept, given, taken, in the order of the scheduler's visits.

Worked out from the dense rows of the step and of the one before, and from the step's evictions. No
log and no chart here. The walk of free blocks is checked against what each eviction recorded; where
the two differ (blocks shared by a prefix, loads), it is left out rather than shown wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from telemetry.step_facts import Row, StepFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request in the step. `num_free` is what was left once it was visited; None: not visited."""

    request: int
    num_kept: int
    num_given: int = 0
    num_taken: int = 0
    is_out: bool = False
    num_needed: int | None = None
    evicts: tuple[int, ...] = ()
    num_free: int | None = None

    @property
    def has_changed(self) -> bool:
        """Whether a block came or went."""
        return bool(self.num_given or self.num_taken or self.evicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMap:
    """All visits in order. `num_free` is at the start of the step; None where it is not known."""

    visits: tuple[Visit, ...]
    num_free: int | None
    has_before: bool
    """Whether the step before is stored; without it, what was given is not known."""


def block_map(facts: StepFacts) -> BlockMap | None:
    """Returns the visits of a step; None where dense rows, or the blocks in them, are missing."""
    rows = {row["request"]: row["num_blocks"] for row in facts.requests}
    before = {row["request"]: row["num_blocks"] for row in facts.requests_before}
    if not rows or None in rows.values() or None in before.values():
        return None
    has_before = bool(before) or facts.step["step"] == 0
    evictions = [event for event in facts.preemptions() if event["beneficiary"] is not None]
    victims = {event["request"]: event for event in facts.preemptions()}
    order = [request for request in before if request in rows or request in victims]
    order += [request for request in (*rows, *victims) if request not in before]
    visits = [
        _visit(request, rows, before if has_before else rows, victims)
        for request in dict.fromkeys(order)
    ]
    visits = [_with_evictions(visit, evictions) for visit in visits]
    return _walked(visits, facts, has_before=has_before)


def _visit(
    request: int, rows: dict[int, int], before: dict[int, int], victims: dict[int, Row]
) -> Visit:
    held, now = before.get(request, 0), rows.get(request, 0)
    if request in victims and request not in rows:
        taken = held or victims[request]["num_blocks_freed"] or 0
        return Visit(request=request, num_kept=0, num_taken=taken, is_out=True)
    return Visit(
        request=request,
        num_kept=min(held, now),
        num_given=max(now - held, 0),
        num_taken=max(held - now, 0),
    )


def _with_evictions(visit: Visit, evictions: list[Row]) -> Visit:
    own = [event for event in evictions if event["beneficiary"] == visit.request]
    if not own:
        return visit
    return replace(
        visit,
        num_needed=own[0]["num_blocks_needed"],
        evicts=tuple(event["request"] for event in own),
    )


def _walked(visits: list[Visit], facts: StepFacts, *, has_before: bool) -> BlockMap:
    """Returns the map with the free blocks after each visit, where they add up."""
    plain = BlockMap(visits=tuple(visits), num_free=None, has_before=has_before)
    events = {event["request"]: event for event in facts.preemptions()}
    freed = {request: event["num_blocks_freed"] for request, event in events.items()}
    after = facts.num_blocks_free
    if not has_before or after is None or None in freed.values():
        return plain
    withdrawn = {
        visit.request: max(freed[visit.request] - visit.num_taken, 0)
        for visit in visits
        if visit.is_out
    }
    released = sum(visit.num_taken for visit in visits if not visit.is_out)
    given = sum(visit.num_given for visit in visits) + sum(withdrawn.values())
    start = free = after + given - sum(freed.values()) - released
    gone: set[int] = set()
    walked = []
    for visit in visits:
        for victim in visit.evicts:
            if events[victim]["num_blocks_free_before"] not in (None, free):
                return plain
            free += freed[victim]
            gone.add(victim)
        if visit.is_out and visit.request in gone and visit.request not in visit.evicts:
            walked.append(visit)
            continue
        free += (0 if visit.is_out else visit.num_taken) - visit.num_given
        free -= withdrawn.get(visit.request, 0) if visit.request not in visit.evicts else 0
        walked.append(replace(visit, num_free=free))
        if free < 0:
            return plain
    return plain if free != after else replace(plain, visits=tuple(walked), num_free=start)

"""Preemptions shared out among the changes that made them, by replaying the load without each.

Each change that did happen is taken out of the recorded load (`undo`), alone and together with the
others, and the load is scheduled again: what a change accounts for is its Shapley value, and what
is left without any of them is unexplained. Replays are compared with replays only: the recorded
count is divided in the proportions that they give. A change whose value is not above 0 did not make
any preemptions and takes no part.

Work is limited by the number of scheduler steps, not by a clock, so the same log always gives the
same answer. Not responsible for finding the changes (`candidates`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from diagnose.causes.change import Case, Change
from diagnose.causes.shapley import coalitions_of, shapley
from diagnose.causes.undo import Undo, together
from diagnose.finding import Share
from diagnose.reading import Scope, read_row
from diagnose.replay import (
    ReplayError,
    Workload,
    WorkRequest,
    read_workload,
    simulate,
    with_requests,
    with_settings,
)
from engine.config import ConfigError

Effort = Literal["none", "brief", "usual", "thorough"]
"""How much a diagnosis may replay: nothing, what fits between two evaluations of an analyst, what
leaves a diagnosis quick, or all that there is.
"""
BRIEF_WORK = 12_000
"""The same as `WORK_LIMIT` for an analyst, that evaluates every ten seconds: about one of CPU."""
WORK_LIMIT = 24_000
"""Scheduler steps that all replays of a diagnosis may take together: about two seconds of CPU."""
LEAST_WORK = 1_500
"""The same where the window itself is long, so that a day of an engine stays under 5 s. It is
enough for a short episode alone: of others, a day's diagnosis names the command that replays them.
"""
LONG_WINDOW = 50
"""A window of so many steps costs as much to judge as one replayed step."""
MAX_SEEDS = 3
"""Replays of the same load, with step times drawn anew: preemptions scatter."""
MAX_STEPS_RATIO = 4
"""A replay without a change ends after so many times the recorded steps, wherever it is then."""
MAX_MISS = 0.5
"""A replay that misses the recorded count by more than this says nothing. Starting value."""
LEAD_NS = 30_000_000_000
"""How long before the first change a shortened replay begins. Starting value."""

STEPS_SQL = "SELECT coalesce(sum(num_repeats), 0)::BIGINT AS n FROM steps WHERE {where}"


def work_limit(effort: Effort, num_steps: int) -> int | None:
    """Returns how many steps may be replayed for a window of `num_steps`; `None`: any number."""
    match effort:
        case "none":
            return 0
        case "brief":
            return max(LEAST_WORK, BRIEF_WORK - num_steps // LONG_WINDOW)
        case "usual":
            return max(LEAST_WORK, WORK_LIMIT - num_steps // LONG_WINDOW)
        case "thorough":
            return None
        case _:
            assert_never(effort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Shares of an episode's preemptions, or why there are none.

    `without` is what is left of them if one change alone is taken out, by its name.
    """

    shares: tuple[Share, ...] = ()
    why: str = ""
    num_recorded: int = 0
    num_replayed: float | None = None
    without: tuple[tuple[str, float], ...] = ()

    @property
    def unexplained_ratio(self) -> float:
        """What no change accounts for."""
        return next((share.ratio for share in self.shares if share.kind is None), 0.0)

    def ratio_of(self, change: Change) -> float | None:
        """Returns a change's share; `None` where nothing was shared out, or it took no part."""
        return next((s.ratio for s in self.shares if s.name == change.name), None)


def attribute(case: Case, changes: Sequence[Change], limit: int | None) -> Attribution:
    """Returns what each change that happened accounts for of an episode's preemptions.

    Args:
        case: the episode.
        changes: all candidates; those without an `undo` did not happen.
        limit: scheduler steps for all replays together; `None` sets none.
    """
    happened = [change for change in changes if change.undo is not None]
    if not happened:
        return Attribution(why="nothing changed that could be taken back")
    num_runs = len(coalitions_of(range(len(happened))))
    scope, num_steps = _stretch(case, happened, num_runs, limit)
    if limit is not None and num_steps * num_runs > limit:
        work = f"{num_runs} replays of {num_steps:,} steps"
        return Attribution(why=f"shares take {work}: stepscope diagnose --thorough")
    seeds = MAX_SEEDS
    if limit is not None:
        seeds = max(1, min(MAX_SEEDS, limit // max(2 * num_steps * num_runs, 1)))
    try:
        workload = read_workload(case.log, scope.engine, scope.start_ts, scope.end_ts)
        most = MAX_STEPS_RATIO * max(num_steps, 1)
        return _shared(case, workload, happened, range(seeds), most)
    except (ReplayError, ConfigError) as error:
        return Attribution(why=f"shares are not worked out: {error}")


def _stretch(
    case: Case, happened: Iterable[Change], num_runs: int, limit: int | None
) -> tuple[Scope, int]:
    """Returns what is replayed, and its steps: from the last moment of rest before all changes.

    Where that is too much, from shortly before the first change, with what is in flight then.
    """
    opened, end = case.episode.opened_ts, case.episode.stretch.end_ts
    began = min([opened, *(change.began_ts or opened for change in happened)])
    arrived = case.traffic.arrived_ts
    arrived = arrived[arrived <= max(began, int(arrived[0]) if len(arrived) else 0)]
    rests = arrived[case.traffic.in_flight_at(arrived - 1) == 0]
    start = int(rests[-1]) if len(rests) else case.context_start_ts
    scope = Scope(case.settings.engine, start, end)
    num_steps = _count_steps(case, scope)
    later = max(start, began - LEAD_NS)
    if limit is None or num_steps * num_runs <= limit or later == start:
        return scope, num_steps
    scope = replace(scope, start_ts=later)
    return scope, _count_steps(case, scope)


def _count_steps(case: Case, scope: Scope) -> int:
    return int(read_row(case.log, scope.fill(STEPS_SQL))["n"])


def _shared(
    case: Case, workload: Workload, happened: Sequence[Change], seeds: range, max_steps: int
) -> Attribution:
    known: dict[frozenset[int], float] = {}

    def preemptions(present: frozenset[int]) -> float:
        if present not in known:
            absent = [c.undo for i, c in enumerate(happened) if i not in present and c.undo]
            changed = taken_out(workload, together(absent))
            runs = [simulate(changed, seed=seed, max_steps=max_steps) for seed in seeds]
            known[present] = sum(run.num_preemptions for run in runs) / len(runs)
        return known[present]

    everybody = frozenset(range(len(happened)))
    replayed, recorded = preemptions(everybody), workload.recorded.num_preemptions or 0
    if not recorded or abs(replayed - recorded) > MAX_MISS * recorded:
        why = f"a replay has {replayed:.0f} preemptions for {recorded:.0f}: too far off for shares"
        return Attribution(why=why)
    players = sorted(everybody)
    values = _values(players, everybody, preemptions)
    while len(players) > 1 and min(values.values()) <= 0:
        players.remove(min(players, key=lambda player: values[player]))
        values = _values(players, everybody, preemptions)
    parts = [(happened[player], max(values[player], 0.0) / replayed) for player in players]
    parts.sort(key=lambda part: -part[1])
    alone = [(c.name, preemptions(everybody - {i})) for i, c in enumerate(happened)]
    return Attribution(
        shares=_shares(parts, case.account.num_rows),
        why=f"replayed without each: {replayed:.0f} for {recorded:.0f} recorded",
        num_recorded=int(recorded),
        num_replayed=replayed,
        without=tuple(alone),
    )


def _values(
    players: Sequence[int],
    everybody: frozenset[int],
    preemptions: Callable[[frozenset[int]], float],
) -> dict[int, float]:
    """Returns what some changes account for while the others stay in the load."""
    others = everybody - frozenset(players)
    return shapley(players, lambda present: preemptions(present | others))


def _shares(parts: Sequence[tuple[Change, float]], num_rows: int) -> tuple[Share, ...]:
    """Returns the shares with the rest that nothing explains: they sum to 1 and to the count."""
    shares = [
        Share(kind=change.kind, name=change.name, num=ratio * num_rows, ratio=ratio)
        for change, ratio in parts
        if ratio > 0
    ]
    rest = 1.0 - sum(share.ratio for share in shares)
    left = num_rows - sum(share.num for share in shares)
    return (*shares, Share(kind=None, name="unexplained", num=left, ratio=rest))


# ------------------------------------------------------------------------ the load without a change


def taken_out(workload: Workload, undo: Undo) -> Workload:
    """Returns a load as it would have been without some changes."""
    requests = [
        _changed(request, undo)
        for request in workload.requests
        if request.number not in undo.dropped
    ]
    changed = with_requests(workload, requests)
    if undo.prefixes:
        changed = replace(changed, tokens=changed.tokens.beginning_like(undo.prefixes))
    if undo.without_resets:
        acts = tuple(act for act in changed.acts if act.kind == "pause")
        changed = replace(changed, acts=acts)
    known = {n: v for n, v in undo.settings.items() if _is_replayable(changed, n, v)}
    return with_settings(changed, **known) if known else changed


def _changed(request: WorkRequest, undo: Undo) -> WorkRequest:
    number = request.number
    prompt = undo.num_prompt_tokens.get(number, request.num_prompt_tokens)
    output = undo.num_output_tokens.get(number, request.num_output_tokens)
    changed = replace(
        request,
        num_prompt_tokens=max(prompt, 1),
        num_output_tokens=max(output, request.num_outputs_before, 1),
        priority=undo.priority.get(number, request.priority),
        num_shared_tokens=min(request.num_shared_tokens, prompt),
    )
    if undo.load_ns is None:
        return changed
    loads = tuple(undo.load_ns for _ in request.transfers.load_ns)
    return replace(changed, transfers=replace(request.transfers, load_ns=loads))


def _is_replayable(workload: Workload, name: str, value: object) -> bool:
    """Whether a replay knows a setting at all; an impossible value is found out later."""
    try:
        with_settings(workload, **{name: value})
    except ConfigError:
        return True
    except ValueError:
        return False
    return True

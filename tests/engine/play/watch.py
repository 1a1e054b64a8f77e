"""What holds in every output of the scheduler, whatever the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler import SchedulerOutput

if TYPE_CHECKING:
    from tests.engine.play.player import Player

PLACEHOLDER = -1


class Watch:
    """Asserts of each output that it keeps the budgets and agrees with itself."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        """Requests that the runner has been sent."""
        self._away: set[str] = set()
        """Of them, those that were preempted and have not come back."""

    def scheduled(self, play: Player, output: SchedulerOutput) -> None:
        """Checks an output as soon as it is decided."""
        _check_budgets(play, output)
        _check_encoder(play, output)
        _check_drafts(play, output)
        self._check_delta(play, output)
        if output.preempted_in_order:
            assert not output.scheduled_new_reqs, "admitted in a step that preempted"
            assert not any(data.resumed for data in output.scheduled_cached_reqs)
            assert not output.kv_loads_started

    def executed(self, play: Player, output: SchedulerOutput, reports: object) -> None:
        """Nothing: what is checked here is known when the step is decided."""

    def _check_delta(self, play: Player, output: SchedulerOutput) -> None:
        """The runner can follow: new ones are new, resumed ones were away, nobody comes twice."""
        assert output.preempted_req_ids <= self._known, "preempted, and never sent"
        self._away |= output.preempted_req_ids
        self._known -= output.finished_req_ids
        self._away -= output.finished_req_ids
        new = [data.request_id for data in output.scheduled_new_reqs]
        cached = [data.request_id for data in output.scheduled_cached_reqs]
        assert sorted(new + cached) == sorted(output.num_scheduled_tokens), "told twice, or not"
        assert len(set(output.preempted_in_order)) == len(output.preempted_in_order)
        for data in output.scheduled_cached_reqs:
            assert data.request_id in self._known
            assert data.resumed is (data.request_id in self._away), "resumed, or running"
            assert data.resumed is (data.all_token_ids is not None)
        for name in new:
            is_session = play.requests[name].session is not None
            assert name not in self._known or is_session, "new, and known"
        self._known |= set(new)
        self._away -= set(new) | set(cached)
        assert not output.finished_req_ids & output.num_scheduled_tokens.keys()


def _check_budgets(play: Player, output: SchedulerOutput) -> None:
    limits, scheduler = play.scenario.config.scheduler, play.scheduler
    tokens = output.num_scheduled_tokens
    assert all(count > 0 for count in tokens.values()), "scheduled with no token"
    assert sum(tokens.values()) == output.total_num_scheduled_tokens <= limits.scheduled_tokens
    assert len(tokens) <= len(scheduler.running) <= limits.active_seqs
    _check_adapters(play, output)
    starts = {data.request_id: data.num_computed_tokens for data in output.scheduled_new_reqs}
    starts |= {data.request_id: data.num_computed_tokens for data in output.scheduled_cached_reqs}
    for name, count in tokens.items():
        assert starts[name] + count <= limits.max_model_len, "scheduled beyond max_model_len"
    if limits.long_prefill_token_threshold and len(scheduler.requests) >= 2:
        cap = limits.long_prefill_token_threshold
        if limits.long_prefill_token_threshold_adaptive:
            cap = max(cap, limits.max_num_batched_tokens // 2)
        assert max(tokens.values(), default=0) <= cap, "more than the threshold"


def _check_adapters(play: Player, output: SchedulerOutput) -> None:
    """An admission adds no adapter to a full step.

    Two requests can be admitted while a third is passed over, and all run in the step after that:
    the limit is one of admissions.
    """
    limit = play.scenario.config.scheduler.max_loras
    if limit is None:
        return
    resumed = [data.request_id for data in output.scheduled_cached_reqs if data.resumed]
    admitted = resumed + [data.request_id for data in output.scheduled_new_reqs]
    before = output.num_scheduled_tokens.keys() - set(admitted)
    old = {play.requests[name].adapter for name in before} - {None}
    all_ = {play.requests[name].adapter for name in output.num_scheduled_tokens} - {None}
    assert len(all_) <= max(limit, len(old)), "an admission brought one adapter too many"


def _check_encoder(play: Player, output: SchedulerOutput) -> None:
    encoder, cache = play.scenario.config.encoder, play.scheduler.encoder_cache
    if encoder is None or cache is None:
        assert not output.scheduled_encoder_inputs
        return
    items = [
        play.requests[name].encoder_items[index]
        for name, indices in output.scheduled_encoder_inputs.items()
        for index in indices
    ]
    assert len({item.key for item in items}) == len(items), "an item is encoded twice in a step"
    assert sum(item.num_embeds for item in items) <= encoder.compute_budget
    assert 0 <= cache.num_free <= cache.num_reclaimable <= encoder.cache_size


def _check_drafts(play: Player, output: SchedulerOutput) -> None:
    most = play.scenario.config.speculation.num_speculative_tokens
    for name, drafts in output.scheduled_spec_decode_tokens.items():
        assert 0 < len(drafts) <= most
        assert len(drafts) < output.num_scheduled_tokens[name], "drafts without a known token"

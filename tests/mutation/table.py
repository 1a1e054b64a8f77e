"""The breaks: what is changed where, and which rule that breaks.

A rule is a number of the recorded scheduler's rules (1 to 64), of its corrections (9.1 to 9.26), or
`seed N` for a chapter of the seed. `array path` says that the rule is broken there alone.
"""

from __future__ import annotations

from dataclasses import dataclass

SCAN = "engine/scheduler"
CACHE = "engine/kv_cache"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One break; `old` occurs once in `file`."""

    name: str
    rule: str
    file: str
    old: str
    new: str


MUTATIONS = (
    # ----------------------------------------------------------------------- blocks, the pool
    Mutation(
        "release_first_block_first",
        "2",
        f"{CACHE}/block_pool.py",
        "for block in reversed(blocks):",
        "for block in blocks:",
    ),
    Mutation(
        "cached_blocks_to_the_front",
        "2",
        f"{CACHE}/block_pool.py",
        "self._link(cached, after=self._previous[0])",
        "self._link(cached, after=0)",
    ),
    Mutation(
        "unhashed_blocks_to_the_end",
        "2",
        f"{CACHE}/block_pool.py",
        "self._link(unhashed, after=0)",
        "self._link(unhashed, after=self._previous[0])",
    ),
    Mutation(
        "lookahead_takes_no_slots",
        "4",
        f"{CACHE}/room.py",
        "return min(end + self._lookahead, self._max_model_len)",
        "return min(end, self._max_model_len)",
    ),
    Mutation(
        "lookahead_beyond_max_model_len",
        "9.21",
        f"{CACHE}/room.py",
        "return min(end + self._lookahead, self._max_model_len)",
        "return end + self._lookahead",
    ),
    Mutation(
        "hits_in_the_free_list_are_free",
        "6",
        f"{CACHE}/room.py",
        "return sum(self._pool.is_free(block) for blocks in hits.blocks",
        "return sum(False and self._pool.is_free(block) for blocks in hits.blocks",
    ),
    Mutation(
        "evicted_block_keeps_its_hash",
        "33",
        f"{CACHE}/block_pool.py",
        "                self._drop_key(block, key)\n            blocks.append(block)",
        "                self._keys[block] = None\n            blocks.append(block)",
    ),
    Mutation(
        "reset_while_blocks_are_in_use",
        "34",
        f"{CACHE}/block_pool.py",
        "if self.num_free != self.num_usable:",
        "if self.num_free == 0:",
    ),
    # ----------------------------------------------------------------------- running requests
    Mutation(
        "drafts_are_not_wanted",
        "8",
        f"{SCAN}/running_scan.py",
        "        num_wanted = request.num_tokens_with_drafts - request.num_computed_tokens\n"
        "        fit =",
        "        num_wanted = request.num_tokens - request.num_computed_tokens\n        fit =",
    ),
    Mutation(
        "running_up_to_max_model_len",
        "8",
        f"{SCAN}/running_scan.py",
        "state.limits.max_model_len - 1 - start",
        "state.limits.max_model_len - start",
    ),
    Mutation(
        "scan_stops_at_a_zero",
        "8",
        f"{SCAN}/running_scan.py",
        "            index += 1\n            continue",
        "            index += 1\n            break",
    ),
    Mutation(
        "fcfs_victim_is_the_head",
        "10",
        f"{SCAN}/queues.py",
        "return running[-1]",
        "return running[0]",
    ),
    Mutation(
        "priority_victim_by_priority_alone",
        "10",
        f"{SCAN}/queues.py",
        "return max(running, key=lambda request: request.urgency)",
        "return max(running, key=lambda request: request.priority)",
    ),
    Mutation(
        "last_of_equal_victims",
        "10",
        f"{SCAN}/queues.py",
        "return max(running, key=lambda request: request.urgency)",
        "return max(reversed(running), key=lambda request: request.urgency)",
    ),
    Mutation(
        "scan_goes_on_after_self_preemption",
        "11",
        f"{SCAN}/running_scan.py",
        "        if new_blocks is None:\n            break",
        "        if new_blocks is None and plan.victim_not_releasable:\n            break\n"
        "        if new_blocks is None:\n            continue",
    ),
    Mutation(
        "withdrawn_tokens_are_lost",
        "12",
        f"{SCAN}/plan.py",
        "            self.token_budget += grant.num_tokens\n",
        "",
    ),
    Mutation(
        "withdrawn_encoder_budget_is_lost",
        "12",
        f"{SCAN}/plan.py",
        "            self.encoder_budget += grant.num_embeds\n",
        "",
    ),
    Mutation(
        "victim_keeps_its_drafts",
        "13",
        f"{SCAN}/preemption.py",
        "    victim.draft_token_ids = []\n",
        "",
    ),
    Mutation(
        "victim_keeps_its_encoder_references",
        "13",
        f"{SCAN}/preemption.py",
        "    let_go_of_all(state.encoder_cache, victim)\n",
        "",
    ),
    Mutation(
        "victim_stays_among_those_given_nothing",
        "13",
        f"{SCAN}/plan.py",
        "        self.zeros = [zero for zero in self.zeros if zero[0] is not request]\n",
        "",
    ),
    Mutation(
        "victim_to_the_end_of_the_queue",
        "13",
        f"{SCAN}/preemption.py",
        "state.waiting.put_back(victim)",
        "state.waiting.add(victim)",
    ),
    Mutation(
        "admission_after_a_preemption",
        "14",
        f"{SCAN}/waiting_scan.py",
        "    if plan.preempted:\n        return AdmissionStop(StopReason.preempted_this_step)\n",
        "",
    ),
    # ------------------------------------------------------------------------------ admission
    Mutation(
        "slots_up_to_max_num_seqs",
        "15",
        f"{SCAN}/waiting_scan.py",
        "if len(state.running) + num_sessions >= limits.active_seqs:",
        "if len(state.running) + num_sessions >= limits.max_num_seqs:",
    ),
    Mutation(
        "set_aside_in_reverse_order",
        "16",
        f"{SCAN}/waiting_scan.py",
        "for queue, request in reversed(set_aside):",
        "for queue, request in set_aside:",
    ),
    Mutation(
        "threshold_for_a_single_request",
        "17",
        f"{SCAN}/scheduler.py",
        "        if num_requests < 2:\n            return None\n",
        "",
    ),
    Mutation(
        "adaptive_threshold_is_plain",
        "17",
        f"{SCAN}/scheduler.py",
        "return max(cap, limits.max_num_batched_tokens // num_requests)",
        "return cap",
    ),
    Mutation(
        "threshold_counts_running_alone",
        "17",
        f"{SCAN}/scheduler.py",
        "num_requests = len(self.running) + self.num_waiting",
        "num_requests = len(self.running)",
    ),
    Mutation(
        "unchunked_prompts_are_cut",
        "19",
        f"{SCAN}/waiting_scan.py",
        "if num_tokens > room and not state.limits.enable_chunked_prefill:",
        "if num_tokens > room and state.limits.enable_chunked_prefill is None:",
    ),
    Mutation(
        "whole_prompt_is_not_reserved",
        "20",
        f"{CACHE}/room.py",
        "            checks.insert(0, (StopReason.kv_blocks_whole_prompt, whole))\n",
        "",
    ),
    Mutation(
        "watermark_on_an_empty_system",
        "21",
        f"{SCAN}/waiting_scan.py",
        "busy = bool(state.running)",
        "busy = True",
    ),
    Mutation(
        "watermark_is_not_spared",
        "21",
        f"{CACHE}/room.py",
        "            if needed + kept > self._pool.num_free:\n"
        "                return Shortage(StopReason.kv_watermark, needed + kept)\n",
        "",
    ),
    Mutation(
        "arrivals_in_front",
        "22",
        f"{SCAN}/scheduler.py",
        "self.waiting.add(request)",
        "self.waiting.put_back(request)",
    ),
    Mutation(
        "adapters_without_limit",
        "24",
        f"{SCAN}/waiting_scan.py",
        "return SkipReason.lora_slots if len(adapters) >= limit else None",
        "return SkipReason.lora_slots if len(adapters) > limit else None",
    ),
    # ------------------------------------------------------------------------- after the step
    Mutation(
        "stops_one_output_late",
        "27",
        f"{SCAN}/stopping.py",
        "request.num_output_tokens >= sampling.max_tokens",
        "request.num_output_tokens > sampling.max_tokens",
    ),
    Mutation(
        "eos_is_no_end",
        "27",
        f"{SCAN}/stopping.py",
        "token_id == request.eos_token_id and not sampling.ignore_eos",
        "token_id == request.eos_token_id and sampling.ignore_eos",
    ),
    Mutation(
        "tokens_behind_the_end_are_kept",
        "27",
        f"{SCAN}/new_tokens.py",
        "        if reason is not None:\n            break",
        "        if reason is not None:\n            continue",
    ),
    # --------------------------------------------------------------------------- prefix cache
    Mutation(
        "hash_without_the_adapter",
        "29",
        f"{CACHE}/hashing.py",
        "    if adapter is not None:\n        parts",
        "    if adapter is not None and start < 0:\n        parts",
    ),
    Mutation(
        "hash_without_the_salt",
        "29",
        f"{CACHE}/hashing.py",
        "if salt is not None and start == 0:",
        "if salt is not None and start < 0:",
    ),
    Mutation(
        "hash_without_the_item",
        "29",
        f"{CACHE}/hashing.py",
        "if item.position < end and item.end > start:",
        "if item.position < end and item.end > start and start < 0:",
    ),
    Mutation(
        "hash_without_the_item_offset",
        "29",
        f"{CACHE}/hashing.py",
        "{item.position - start}",
        "",
    ),
    Mutation(
        "a_whole_prompt_may_hit",
        "30",
        f"{CACHE}/prefix_cache.py",
        "request.num_tokens - 1)",
        "request.num_tokens)",
    ),
    Mutation(
        "skip_reading_requests_look_up",
        "35",
        f"{CACHE}/prefix_cache.py",
        "return self.is_enabled and request.reads_prefix_cache",
        "return self.is_enabled",
    ),
    Mutation(
        "drafts_enter_the_cache",
        "31",
        f"{CACHE}/prefix_cache.py",
        "        end = min(end, request.num_tokens)\n        if len",
        "        end = min(end, request.num_tokens - 1)\n        if len",
    ),
    # ---------------------------------------------------------------------------- speculation
    Mutation(
        "padding_beside_a_prefill",
        "36",
        f"{SCAN}/waiting_scan.py",
        "num_drafts = 0 if beside_prefill else",
        "num_drafts = 0 if beside_prefill is None else",
    ),
    Mutation(
        "padding_up_to_the_last_position",
        "36",
        f"{SCAN}/waiting_scan.py",
        "num_computed_tokens + 1 + self.num_drafts + 1 <= self.max_model_len",
        "num_computed_tokens + 1 + self.num_drafts <= self.max_model_len",
    ),
    Mutation(
        "drafts_in_mid_prefill",
        "38",
        f"{SCAN}/scheduler.py",
        "kept = [] if request.is_prefill_chunk else list(token_ids)",
        "kept = list(token_ids)",
    ),
    Mutation(
        "last_hit_block_is_kept",
        "40",
        f"{CACHE}/prefix_hits.py",
        "return max(0, num_blocks - self._drop) * kind.block_size",
        "return max(0, num_blocks) * kind.block_size",
    ),
    Mutation(
        "rejected_drafts_stay_computed",
        "41",
        f"{SCAN}/new_tokens.py",
        "    request.num_computed_tokens -= num_rejected\n",
        "",
    ),
    # --------------------------------------------------------------------- grammars, sessions
    Mutation(
        "failed_grammar_waits_for_ever",
        "42",
        f"{SCAN}/waiting_scan.py",
        '        state.failed[request] = "the grammar could not be compiled"\n',
        "        pass\n",
    ),
    Mutation(
        "session_keeps_its_last_token",
        "43",
        f"{SCAN}/turns.py",
        "    del request.token_ids[end:]\n",
        "",
    ),
    Mutation(
        "session_takes_no_slot",
        "44",
        f"{SCAN}/waiting_scan.py",
        "len(state.running) + num_sessions >=",
        "len(state.running) >=",
    ),
    # ------------------------------------------------------------------------------ connector
    Mutation(
        "loads_leave_nothing_to_prefills",
        "47",
        f"{CACHE}/room.py",
        "needed = self._chunk_blocks(hits, end, end) + kept + num_blocks_reserved",
        "needed = self._chunk_blocks(hits, end, end) + kept",
    ),
    Mutation(
        "loaded_prompt_computes_nothing",
        "48",
        f"{SCAN}/kv_loads.py",
        "        request.num_computed_tokens -= 1\n",
        "        pass\n",
    ),
    Mutation(
        "loaded_prompt_of_one_token_is_looked_up",
        "48",
        f"{SCAN}/waiting_scan.py",
        "    if state.kv.holds(request):",
        "    if request.num_computed_tokens > 0:",
    ),
    Mutation(
        "aborted_load_gives_its_blocks_back",
        "50",
        f"{SCAN}/kv_loads.py",
        "if request.is_loading or connector.delays_free(request):",
        "if connector.delays_free(request):",
    ),
    Mutation(
        "waiting_before_kv_wait",
        "51",
        f"{SCAN}/state.py",
        "return self.kv_holding_waiting if len(self.kv_holding_waiting) else self.waiting",
        "return self.waiting if len(self.waiting) else self.kv_holding_waiting",
    ),
    # -------------------------------------------------------------------------------- encoder
    Mutation(
        "encoder_budget_without_limit",
        "52",
        f"{SCAN}/encoder_inputs.py",
        "if num_embeds > plan.encoder_budget:",
        "if num_embeds < 0:",
    ),
    Mutation(
        "items_are_split",
        "53",
        f"{SCAN}/encoder_inputs.py",
        "if never_splits and before > 0 and end < item.end:",
        "if never_splits and before > 0 and end < 0:",
    ),
    Mutation(
        "references_are_never_dropped",
        "54",
        f"{SCAN}/encoder_inputs.py",
        "        if item.end <= passed:\n",
        "        if item.end <= passed - 10**9:\n",
    ),
    # -------------------------------------------------------------------------------- windows
    Mutation(
        "window_keeps_all_blocks",
        "56",
        f"{CACHE}/group.py",
        "return max(0, num_computed_tokens - self._window + 1) // self.block_size",
        "return 0",
    ),
    Mutation(
        "window_is_a_token_short",
        "56",
        f"{CACHE}/group.py",
        "return max(0, num_computed_tokens - self._window + 1) // self.block_size",
        "return max(0, num_computed_tokens - self._window + 2) // self.block_size",
    ),
    Mutation(
        "window_hit_of_any_length",
        "57",
        f"{CACHE}/prefix_hits.py",
        "need = kind.groups[0].run_length + drop",
        "need = 1 + drop",
    ),
    # ---------------------------------------------------------------- asynchronous scheduling
    Mutation(
        "scheduled_beyond_max_tokens",
        "59",
        f"{SCAN}/async_output.py",
        "return request.num_computed_tokens + 2 - placeholders >= end",
        "return request.num_computed_tokens + 1 - placeholders >= end",
    ),
    Mutation(
        "token_in_flight_is_dropped",
        "60",
        f"{SCAN}/preemption.py",
        "return StaleOutput.DROPPED if beneficiary is None or sends else StaleOutput.DELIVERED",
        "return StaleOutput.DROPPED",
    ),
    Mutation(
        "blocks_in_flight_are_given_away",
        "62",
        f"{SCAN}/running_scan.py",
        "if state.defers_frees and victim.in_flight:",
        "if state.defers_frees and victim.in_flight is None:",
    ),
    # ---------------------------------------------------------------------- pause, throttling
    Mutation(
        "paused_new_admits",
        "63",
        f"{SCAN}/waiting_scan.py",
        "if state.pause is PauseState.PAUSED_NEW and not len(state.kv_holding_waiting):",
        "if state.pause is PauseState.PAUSED_NEW and state.kv_holding_waiting is None:",
    ),
    Mutation(
        "paused_all_runs",
        "63",
        f"{SCAN}/scheduler.py",
        "budget = 0 if self.pause is PauseState.PAUSED_ALL else limits.scheduled_tokens",
        "budget = limits.scheduled_tokens",
    ),
    Mutation(
        "throttled_prefills_run",
        "64",
        f"{SCAN}/running_scan.py",
        "if plan.defers_prefills and request.is_prefill_chunk:",
        "if plan.defers_prefills is None:",
    ),
    Mutation(
        "throttles_though_many_wait",
        "9.20",
        f"{SCAN}/scheduler.py",
        "            and not self.left_ready_waiting\n",
        "",
    ),
    # ------------------------------------------------------------------------ corrections (9)
    Mutation(
        "withdrawn_chunk_stays_hashed",
        "6, quirk",
        f"{SCAN}/preemption.py",
        "state.kv.release(victim, uncache_from=victim.num_computed_tokens)",
        "state.kv.release(victim)",
    ),
    Mutation(
        "failed_admission_keeps_references",
        "9.6",
        f"{SCAN}/waiting_scan.py",
        "        let_go_of_all(state.encoder_cache, request)\n"
        "        return AdmissionStop(shortage",
        "        return AdmissionStop(shortage",
    ),
    Mutation(
        "deferred_blocks_come_back_a_step_early",
        "9.17",
        f"{SCAN}/kv_loads.py",
        "if until <= step]",
        "if until <= step + 1]",
    ),
    # ------------------------------------------------------------------------- the array path
    Mutation(
        "row_takes_a_block_too_late",
        "4, array path",
        f"{SCAN}/decode_rows.py",
        "return self.order.at_phase(self.num_scheduled % self._block_size)",
        "return self.order.at_phase((self.num_scheduled - 1) % self._block_size)",
    ),
    Mutation(
        "row_enters_a_block_too_early",
        "31, array path",
        f"{SCAN}/decode_rows.py",
        "return self.order.at_phase((self.num_taken + 1) % self._block_size)",
        "return self.order.at_phase((self.num_taken + 2) % self._block_size)",
    ),
    Mutation(
        "row_ends_one_output_late",
        "27, array path",
        f"{SCAN}/decode_rows.py",
        "end_at = length - offset - 1",
        "end_at = length - offset",
    ),
    Mutation(
        "row_does_not_see_its_eos",
        "27, array path",
        f"{SCAN}/decode_rows.py",
        "eos = NO_TOKEN if sampling.ignore_eos else request.eos_token_id",
        "eos = None",
    ),
    Mutation(
        "row_does_not_see_its_stop_tokens",
        "27, array path",
        f"{SCAN}/decode_rows.py",
        "        if self._num_stopping:\n",
        "        if self._num_stopping < 0:\n",
    ),
    Mutation(
        "rows_overdraw_the_budget",
        "9, array path",
        f"{SCAN}/decode_scan.py",
        "if plan.token_budget < len(rows) or",
        "if plan.token_budget < 0 or",
    ),
    Mutation(
        "rows_take_nothing_off_the_budget",
        "9, array path",
        f"{SCAN}/decode_scan.py",
        "    plan.token_budget -= len(rows)\n",
        "",
    ),
    Mutation(
        "rows_evict_the_head",
        "10, array path",
        f"{SCAN}/decode_scan.py",
        "victim = choose_victim(state.limits.policy, state.running)",
        "victim = state.running[0]",
    ),
    Mutation(
        "evicted_row_forgets_the_block_in_flight",
        "31, array path",
        f"{SCAN}/preemption.py",
        "            state.kv.enter_filled(rows.flushed([row]))\n",
        "            pass\n",
    ),
    Mutation(
        "row_joins_with_drafts_to_verify",
        "8, array path",
        f"{SCAN}/decode_scan.py",
        "request.num_tokens - num_settled == 1",
        "request.num_tokens - num_settled >= 1",
    ),
    Mutation(
        "settled_row_lags_a_token",
        "25, array path",
        f"{SCAN}/decode_rows.py",
        "request.num_computed_tokens = offset + self.num_scheduled",
        "request.num_computed_tokens = offset + self.num_taken",
    ),
)

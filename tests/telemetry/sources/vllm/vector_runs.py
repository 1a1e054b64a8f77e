"""Plays recorded decisions against vLLM's own scheduler, recorded: runs in vLLM's environment.

Our own engine plays the same vectors in our environment; a test compares the two records.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from telemetry.recorder import ListRecorder
from tests.telemetry.sources.vllm.lab import (
    EOS,
    DraftTokenIds,
    KVConnectorOutput,
    Lab,
    LabGrammar,
    ModelRunnerOutput,
    Script,
    Settings,
)


def settings_of(config: dict[str, Any]) -> Settings:
    """Returns a lab's settings for a vector's."""
    spec, encoder = config["spec"] or {}, config["encoder"] or {}
    connector = config["kv_connector"] or {}
    groups = tuple((g["block_size"], g.get("sliding_window")) for g in config["kv_groups"])
    active = config["max_num_active_seqs"]
    return Settings(
        policy=config["policy"],
        max_num_seqs=config["max_num_seqs"],
        max_num_active_seqs=active if active != config["max_num_seqs"] else None,
        max_num_batched_tokens=config["max_num_batched_tokens"],
        max_num_scheduled_tokens=config["max_num_scheduled_tokens"],
        max_model_len=config["max_model_len"],
        num_blocks=config["num_blocks_incl_null"],
        prefix_caching=config["enable_prefix_caching"],
        chunked_prefill=config["enable_chunked_prefill"],
        long_prefill=config["long_prefill_token_threshold"],
        long_prefill_adaptive=config["long_prefill_token_threshold_adaptive"],
        reserve_whole_prompt=config["reserve_full_prompt"],
        watermark=config["watermark"],
        is_async=config["async_scheduling"],
        num_drafts=spec.get("num_speculative_tokens", 0),
        drafter=spec.get("method", "ngram"),
        max_loras=config["max_loras"] or 0,
        encoder_budget=encoder.get("compute_budget", 0),
        encoder_cache=encoder.get("cache_size", 0),
        whole_items_only=encoder.get("disable_chunked_mm_input", False),
        windows=groups,
        connector_role=connector.get("role"),
        load_failure_policy=connector.get("load_failure_policy", "recompute"),
    )


class VectorLab(Lab):
    """Does what a vector says, step by step."""

    def __init__(self, vector: dict[str, Any], model_dir: Path) -> None:
        super().__init__(settings_of(vector["config"]), model_dir, ListRecorder())
        self.vector = vector
        self.specs = {spec["id"]: spec for spec in vector["requests"]}
        self.outputs: dict[int, Any] = {}
        self.num_outputs: Counter[str] = Counter()

    def play(self, until: int | None = None) -> None:
        """Plays the steps before `until`."""
        for step in self.vector["steps"][:until]:
            self._apply(step.get("ops", ()))
            if "sched" in step:
                throttle = step.get("throttle_prefills", False)
                self.outputs[step["step"]] = self.scheduler.schedule(throttle)
            self._apply(step.get("mid_ops", ()))
            if "update" in step:
                self._update(step["update"])
                self._propose_drafts(step.get("drafts"))

    def record(self) -> ListRecorder:
        """Ends the engine; returns what was recorded."""
        self.scheduler.shutdown()
        assert self.recorder is not None
        return self.recorder

    def _apply(self, ops: Any) -> None:
        for name, *arguments in ops:
            match name:
                case "add":
                    self._add(self.specs[arguments[0]])
                case "abort":
                    self.abort(*arguments)
                case "grammar_ready":
                    self.grammar_is(arguments[0], LabGrammar())
                case "grammar_error":
                    self.grammar_is(arguments[0], ValueError("no such grammar"))
                case "reset_encoder_cache":
                    self.scheduler.reset_encoder_cache()
                case "stream":
                    self._stream(*arguments)
                case "stream_end":
                    self.end_session(arguments[0])
                case "pause":
                    self.pause(arguments[0])
                case "reset_prefix_cache":
                    self.scheduler.reset_prefix_cache(arguments[0])
                case _:
                    raise ValueError(f"operation {name!r} is not known")

    def _add(self, spec: dict[str, Any]) -> None:
        kv = spec.get("kv") or {}
        script = Script(
            name=spec["id"],
            prompt=_expand(spec["prompt"]),
            max_tokens=spec["max_tokens"],
            priority=spec["priority"],
            arrival_time=spec["arrival_time"],
            lora=spec.get("lora"),
            has_grammar=bool(spec.get("structured")),
            items=[(item["hash"], item["offset"], item["length"]) for item in spec.get("mm", ())],
            external=kv.get("ext", 0),
            loads_async=bool(kv.get("async")),
            num_unknown=kv.get("unknown_calls", 0),
            keeps_blocks=bool(kv.get("delay_free")),
            is_session=bool(spec.get("resumable")),
            cache_salt=spec.get("cache_salt"),
            reads_cache=not spec.get("skip_reading_prefix_cache", False),
        )
        self.add(script)

    def _stream(
        self, name: str, segments: list[list[int]], max_tokens: int, arrival_time: float
    ) -> None:
        script = self.scripts[name]
        script.max_tokens, script.arrival_time = max_tokens, arrival_time
        self.say(name, _expand(segments))

    def _update(self, update: dict[str, Any]) -> None:
        output = self.outputs.pop(update["of"])
        names = list(output.num_scheduled_tokens)
        counts = dict(update.get("sampled", ()))
        sampled = [self._oracle(name, counts.get(name, 0)) for name in names]
        results = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=sampled,
                kv_connector_output=self._connector_output(update.get("conn")),
            ),
        )
        for outputs in results.values():
            for result in outputs.outputs:
                self.num_outputs[result.request_id] += len(result.new_token_ids)

    def _connector_output(self, conn: dict[str, Any] | None) -> Any:
        if not conn:
            return None
        blocks = self.scheduler.kv_cache_manager
        invalid = {blocks.get_block_ids(name)[0][place] for name, place in conn.get("invalid", ())}
        return KVConnectorOutput(
            finished_recving=set(conn.get("recv", ())) or None,
            finished_sending=set(conn.get("send", ())) or None,
            invalid_block_ids=invalid,
            failed_recving=set(conn.get("failed", ())),
        )

    def _propose_drafts(self, drafts: Any) -> None:
        if drafts:
            names, tokens = zip(*drafts, strict=True)
            self.scheduler.update_draft_token_ids(
                DraftTokenIds(list(names), [list(each) for each in tokens])
            )

    def _oracle(self, name: str, count: int) -> list[int]:
        spec, first = self.specs[name], self.num_outputs[name]
        return [
            EOS if n == spec.get("eos_at") else spec["output_base"] + n
            for n in range(first, first + count)
        ]


def _expand(segments: list[list[int]]) -> list[int]:
    return [token for start, count in segments for token in range(start, start + count)]

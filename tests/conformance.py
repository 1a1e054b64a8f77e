"""Runs recorded decisions of the real scheduler against ours: `python -m tests.conformance DIR...`.

Strict: block ids are compared as well. A vector that needs what is not built yet is skipped with
`--supported` and fails without it. A vector that shows an oddity of the original which ours
deliberately lacks (`DEVIATIONS`) is compared up to the step at which they part, and not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from engine.config import (
    CacheConfig,
    EncoderConfig,
    EngineConfig,
    KVConnectorConfig,
    KVGroupConfig,
    SchedulerConfig,
    SpeculationConfig,
)
from engine.encoder_cache import EncoderItem
from engine.request import Request
from engine.sampling import SamplingParams
from engine.scheduler import ModelRunnerOutput, PauseState, Scheduler, SchedulerOutput
from engine.session import Session, SessionInput
from telemetry.recorder import ListRecorder
from telemetry.vocabulary import FinishReason, SkipReason
from tests.decisions import decisions_of, effects_of

EOS = 2
STATE_KEYS = ("running", "ncomp", "waiting", "kv_wait", "deferred", "free")
DEVIATIONS = {
    "preempt_priority/withdrawn_chunk_stays_hashed": (3, "withdrawn_chunk_stays_hashed"),
    "connector_more/recompute_keeps_hashes": (1, "invalid_blocks_stay_hashed"),
    "reservation/retry_blocked_by_itself": (4, "failed_load_blocks_its_own_retry"),
    "encoder/priority_preempt_encoder_scheduled": (10, "withdrawn_encoder_input_stays_cached"),
    "async_connector/sync_load_failure_recompute": (2, "placeholder_leak_after_failed_sync_load"),
}
"""Vector -> first step that differs, and the oddity of the original (see docs/decisions)."""
LACKING = {quirk for _, quirk in DEVIATIONS.values()}
"""The oddities that our scheduler does not have."""


def unsupported(vector: dict[str, Any]) -> list[str]:
    """Returns what a vector needs and the scheduler does not have."""
    kinds = {group["kind"] for group in vector["config"]["kv_groups"]}
    return [f"KV groups of kind {kind}" for kind in sorted(kinds - {"full", "sliding_window"})]


class RefusingGrammar:
    """The grammar of the recorded runs: it refuses token 3 and takes everything else."""

    key = "refuses 3"

    def accepted_prefix(self, token_ids: list[int]) -> list[int]:
        return token_ids[: token_ids.index(3)] if 3 in token_ids else token_ids


class ScriptedConnector:
    """Answers as the connector of the recorded runs did."""

    def __init__(self, specs: dict[str, dict[str, Any]]) -> None:
        self._scripts = {name: spec.get("kv") or {} for name, spec in specs.items()}
        self._num_unknown = {
            name: script.get("unknown_calls", 0) for name, script in self._scripts.items()
        }

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        if self._num_unknown[request.request_id] > 0:
            self._num_unknown[request.request_id] -= 1
            return None
        return max(0, self._scripts[request.request_id].get("ext", 0) - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        return bool(self._scripts[request.request_id].get("async"))

    def delays_free(self, request: Request) -> bool:
        return bool(self._scripts[request.request_id].get("delay_free"))


class Replayer:
    """Drives a scheduler through one vector and reports the first difference."""

    def __init__(self, vector: dict[str, Any], *, array_path: bool = True) -> None:
        self.vector = vector
        self.recorder = ListRecorder()
        self.specs = {spec["id"]: spec for spec in vector["requests"]}
        connector = ScriptedConnector(self.specs) if vector["config"]["kv_connector"] else None
        self.scheduler = Scheduler(
            _engine_config(vector["config"]),
            recorder=self.recorder,
            connector=connector,
            array_path=array_path,
        )
        self.requests: dict[str, Request] = {}
        self.outputs: dict[int, SchedulerOutput] = {}
        self.num_outputs: Counter[str] = Counter()
        self.expected_state: dict[str, Any] = {}

    def run(self, until: int | None = None) -> str | None:
        """Returns the first difference as text, or None."""
        for step in self.vector["steps"][:until]:
            try:
                difference = self._step(step)
            except AssertionError as error:
                difference = f"integrity: {error}"
            if difference is not None:
                return f"step {step['step']}: {difference}"
        return None

    def _step(self, step: dict[str, Any]) -> str | None:
        difference = self._apply(step.get("ops", []))
        if difference is not None:
            return difference
        if "sched" in step:
            difference = self._schedule(step)
            if difference is not None:
                return difference
        difference = self._apply(step.get("mid_ops", []))
        if difference is not None or "update" not in step:
            return difference
        seen = self._update(self.outputs.pop(step["update"]["of"]), step["update"])
        self.scheduler.update_draft_token_ids(dict(step.get("drafts", [])))
        self.scheduler.check_integrity()
        return self._compare("after", step["after"], seen)

    def _schedule(self, step: dict[str, Any]) -> str | None:
        output = self.scheduler.schedule(throttle_prefills=step.get("throttle_prefills", False))
        self.outputs[step["step"]] = output
        return self._compare("sched", step["sched"], self._seen_schedule(output, step["sched"]))

    def _apply(self, ops: Iterable[list[Any]]) -> str | None:
        for name, *arguments in ops:
            match name:
                case "add":
                    self._add(arguments[0])
                case "abort":
                    self.scheduler.finish_requests(arguments, FinishReason.abort_client)
                case "grammar_ready":
                    self.scheduler.unblock(arguments[0])
                case "grammar_error":
                    self.scheduler.unblock(arguments[0], SkipReason.grammar_failed)
                case "reset_encoder_cache":
                    self.scheduler.reset_encoder_cache()
                case "stream":
                    self._stream(*arguments)
                case "stream_end":
                    self.scheduler.close_session(arguments[0])
                case "pause":
                    self.scheduler.set_pause(PauseState[arguments[0]])
                case "reset_prefix_cache":
                    done = self.scheduler.reset_prefix_cache(reset_running=arguments[0])
                    if done is not arguments[1]:
                        return f"reset_prefix_cache: {arguments[1]} expected, {done} seen"
                case _:
                    return f"operation {name!r} is not known"
        return None

    def _add(self, name: str) -> None:
        spec = self.specs[name]
        prompt = _expand(spec["prompt"])
        request = Request(
            name,
            number=len(self.requests),
            prompt_token_ids=prompt,
            sampling=SamplingParams(max_tokens=spec["max_tokens"]),
            arrival_time=spec["arrival_time"],
            priority=spec["priority"],
            eos_token_id=EOS,
            reads_prefix_cache=not spec.get("skip_reading_prefix_cache", False),
            adapter=str(spec["lora"]) if spec.get("lora") else None,
            cache_salt=spec.get("cache_salt"),
            session=Session() if spec.get("resumable") else None,
            encoder_items=tuple(
                EncoderItem(item["hash"], item["offset"], item["length"])
                for item in spec.get("mm", ())
            ),
            grammar=RefusingGrammar() if spec.get("structured") else None,
            blocked_by=SkipReason.grammar_compiling if spec.get("structured") else None,
        )
        self.requests[name] = request
        self.scheduler.add_request(request)

    def _stream(
        self, name: str, segments: list[list[int]], max_tokens: int, arrival_time: float
    ) -> None:
        piece = SessionInput(_expand(segments), max_tokens, arrival_time)
        self.scheduler.add_session_input(name, piece)

    def _name(self, number: int | None) -> str:
        return next(name for name, r in self.requests.items() if r.number == number)

    def _seen_schedule(self, output: SchedulerOutput, expected: dict[str, Any]) -> dict[str, Any]:
        seen = decisions_of(self.scheduler, output)
        if "preempted_reported" not in expected:
            reported = sorted(expected.get("preempted", []))
            if seen["preempted_reported"] == reported:
                del seen["preempted_reported"]
        return seen

    def _update(self, output: SchedulerOutput, update: dict[str, Any]) -> dict[str, Any]:
        sampled = {name: self._oracle(name, count) for name, count in update.get("sampled", [])}
        conn = update.get("conn", {})
        results = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                sampled_token_ids=sampled,
                finished_recving=frozenset(conn.get("recv", ())),
                finished_sending=frozenset(conn.get("send", ())),
                failed_recving=frozenset(conn.get("failed", ())),
                invalid_block_ids=frozenset(
                    self.scheduler.kv.block_ids(self.requests[name])[0][index]
                    for name, index in conn.get("invalid", ())
                ),
            ),
        )
        for result in results:
            self.num_outputs[result.request_id] += len(result.new_token_ids)
        return effects_of(self.scheduler, sampled, results)

    def _oracle(self, name: str, count: int) -> list[int]:
        spec, first = self.specs[name], self.num_outputs[name]
        return [
            EOS if n == spec.get("eos_at") else spec["output_base"] + n
            for n in range(first, first + count)
        ]

    def _compare(self, part: str, expected: dict[str, Any], seen: dict[str, Any]) -> str | None:
        self.expected_state.update({k: expected[k] for k in STATE_KEYS if k in expected})
        wanted = {**expected, **self.expected_state}
        for key in wanted.keys() | seen.keys():
            empty: Any = 0 if key == "total" else {} if key == "emitted" else []
            if wanted.get(key, empty) != seen.get(key, empty):
                return (
                    f"{part} {key}: {wanted.get(key, empty)} expected, {seen.get(key, empty)} seen"
                )
        return None


def _expand(segments: list[list[int]]) -> list[int]:
    return [token for start, count in segments for token in range(start, start + count)]


def _engine_config(config: dict[str, Any]) -> EngineConfig:
    spec = config["spec"] or {}
    return EngineConfig(
        kv_connector=KVConnectorConfig(**config["kv_connector"])
        if config["kv_connector"]
        else None,
        encoder=EncoderConfig(**config["encoder"]) if config["encoder"] else None,
        speculation=SpeculationConfig(
            num_speculative_tokens=spec.get("num_speculative_tokens", 0),
            num_lookahead_tokens=spec.get("num_lookahead_tokens", 0),
            prefill_lookahead=spec.get("prefill_lookahead", 0),
            drop_last_hit_block=spec.get("drop_last_hit_block", False),
        ),
        scheduler=SchedulerConfig(
            policy=config["policy"],
            max_num_seqs=config["max_num_seqs"],
            max_num_active_seqs=config["max_num_active_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            max_num_scheduled_tokens=config["max_num_scheduled_tokens"],
            max_model_len=config["max_model_len"],
            enable_chunked_prefill=config["enable_chunked_prefill"],
            long_prefill_token_threshold=config["long_prefill_token_threshold"],
            long_prefill_token_threshold_adaptive=config["long_prefill_token_threshold_adaptive"],
            max_loras=config["max_loras"],
            async_scheduling=config["async_scheduling"],
            scheduler_reserve_full_isl=config["reserve_full_prompt"],
            watermark=config["watermark"],
        ),
        cache=CacheConfig(
            block_size=config["block_size"],
            groups=tuple(KVGroupConfig(**group) for group in config["kv_groups"]),
            num_gpu_blocks=config["num_blocks_incl_null"],
            enable_prefix_caching=config["enable_prefix_caching"],
        ),
    )


def find_vectors(directories: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields name and content of every vector below the directories, in order."""
    for directory in directories:
        for path in sorted(directory.rglob("*.json")):
            if path.name != "index.json":
                vector = json.loads(path.read_text())
                yield f"{vector['category']}/{vector['name']}", vector


def check(name: str, vector: dict[str, Any]) -> str | None:
    """Returns the first difference between a vector and our scheduler on either path, or None."""
    until, _ = DEVIATIONS.get(name, (None, ""))
    for array_path in (True, False):
        difference = Replayer(vector, array_path=array_path).run(until)
        if difference is not None:
            return f"{'array' if array_path else 'plain'} path: {difference}"
    return None


def lacking_quirk(name: str, vector: dict[str, Any], difference: str | None) -> str | None:
    """Returns the oddity for which a vector is not counted; None where it is.

    A vector that is listed has to conform up to its step. Of one that is flagged and not listed
    (it is not among ours) any difference is taken for the oddity's.
    """
    if name in DEVIATIONS:
        return DEVIATIONS[name][1] if difference is None else None
    flagged = sorted(LACKING.intersection(vector.get("quirks", ())))
    return flagged[0] if flagged and difference is not None else None


def main(arguments: list[str] | None = None) -> int:
    """Compares all vectors below the given directories; 0 if every one conforms."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--supported", action="store_true", help="skip what is not built yet")
    options = parser.parse_args(arguments)
    conform = compared = skipped = 0
    for name, vector in find_vectors(options.directories):
        missing = unsupported(vector)
        if missing and options.supported:
            skipped += 1
            continue
        difference = f"needs {', '.join(missing)}" if missing else check(name, vector)
        quirk = lacking_quirk(name, vector, difference)
        if quirk is not None:
            print(f"deviates {name} ({quirk})")
            continue
        if difference is not None:
            print(f"FAIL {name}: {difference}")
        compared += 1
        conform += difference is None
    if skipped:
        print(f"skipped {skipped} that need what is not built yet")
    print(f"conform: {conform}/{compared}")
    return 0 if compared and conform == compared else 1


if __name__ == "__main__":
    sys.exit(main())

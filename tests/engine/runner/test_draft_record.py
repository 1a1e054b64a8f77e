"""What a step log and the metrics say of drafts is what happened to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.config import SpeculationConfig
from engine.core import EngineCore, NewRequest
from engine.identity import DeviceMemory, describe, introduce
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.runner.ngram_drafter import NgramDrafter
from engine.sampling import SamplingParams
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput
from engine.stats import StatsSnapshot
from engine.structured_output.bitmask import GrammarBitmask
from telemetry.records import RunClock
from telemetry.vocabulary import FinishReason
from tests.engine.runner.builders import engine_config
from tests.engine.runner.speculating import prompts
from tests.telemetry.collector.builders import MIB, collect, ring_for, rows

NUM_DRAFTS = 3


@dataclass
class Witness:
    """The real runner, and what it was seen to do."""

    runner: ModelRunner
    proposed: int = 0
    placed: dict[str, list[int]] = field(default_factory=dict)
    accepted: dict[str, list[int]] = field(default_factory=dict)
    padding: int = 0

    def execute(
        self, output: SchedulerOutput, bitmask: GrammarBitmask | None = None
    ) -> ModelRunnerOutput:
        """Returns the runner's answer."""
        result = self.runner.execute(output, bitmask)
        self.proposed += sum(map(len, result.draft_token_ids.values()))
        for name, drafts in output.scheduled_spec_decode_tokens.items():
            sampled = result.sampled_token_ids[name]
            assert sampled[:-1] == drafts[: len(sampled) - 1]
            self.placed.setdefault(name, []).append(len(drafts))
            self.accepted.setdefault(name, []).append(len(sampled) - 1)
            self.padding += drafts.count(-1)
        return result


@dataclass
class Recorded:
    log: Path
    seen: Witness
    snapshot: StatsSnapshot

    def one(self, sql: str) -> tuple[Any, ...]:
        (row,) = rows(self.log, sql)
        return row


@pytest.fixture(scope="module")
def recorded(small_model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A run under pressure, from the runner to the step log in DuckDB."""
    config = engine_config(
        num_blocks=34,
        budget=24,
        max_num_seqs=8,
        max_model_len=96,
        speculation=SpeculationConfig(method="ngram", num_speculative_tokens=NUM_DRAFTS),
    )
    drafter = NgramDrafter(
        num_speculative_tokens=NUM_DRAFTS,
        prompt_lookup_min=1,
        prompt_lookup_max=3,
        max_model_len=96,
    )
    log = tmp_path_factory.mktemp("drafts") / "log"
    log.mkdir()
    clock = RunClock.start()
    ring = ring_for(log, ring_bytes=4 * MIB, clock=clock)
    ring.describe_engine(
        describe(
            introduce(started_ts=clock.now(), model="small", version=None),
            config,
            device="cpu",
            memory=DeviceMemory(),
        )
    )
    witness = Witness(ModelRunner(small_model, config, drafter=drafter))
    core = EngineCore(config, witness, recorder=ring, clock=clock.now, model_name="small")
    sampling = SamplingParams(max_tokens=48, ignore_eos=True, repetition_penalty=0.5)
    pending = [*prompts(small_model.vocab_size, 7), [7], [8], [9]]
    num_requests = len(pending)
    while core.has_work() or pending:
        if pending and core.num_steps % 8 == 0:  # the short ones come while others decode
            name = f"r{num_requests - len(pending)}"
            text = pending.pop(0)
            core.add_request(NewRequest(request_id=name, prompt_token_ids=text, sampling=sampling))
        core.step()
    core.abort_all(FinishReason.abort_api)  # nobody is left: it hands over the rest
    ring.close()
    collect(log, detail="full")
    return Recorded(log, witness, core.snapshot())


def total(each: dict[str, list[int]]) -> int:
    return sum(map(sum, each.values()))


def test_something_of_every_kind_has_happened(recorded: Recorded) -> None:
    seen = recorded.seen
    assert 30 < total(seen.accepted) < total(seen.placed) < seen.proposed
    assert seen.padding > 0
    assert recorded.snapshot.num_preemptions > 0


def test_steps_count_proposed_placed_accepted_and_padding(recorded: Recorded) -> None:
    seen = recorded.seen
    assert recorded.one(
        "SELECT sum(num_drafted), sum(num_placed), sum(num_accepted), sum(num_padding_tokens), "
        "sum(num_draft_tokens) FROM steps"
    ) == (
        seen.proposed,
        total(seen.placed),
        total(seen.accepted),
        seen.padding,
        total(seen.placed) - seen.padding,
    )


def test_the_dense_rows_say_whose_drafts_they_were(recorded: Recorded) -> None:
    found = rows(
        recorded.log,
        "SELECT r.request_id, sum(num_drafts), sum(num_accepted) FROM step_requests d "
        "JOIN requests r USING (engine, request) GROUP BY ALL HAVING sum(num_drafts) > 0",
    )
    seen = recorded.seen
    assert {name: (placed, accepted) for name, placed, accepted in found} == {
        name: (sum(seen.placed[name]), sum(seen.accepted[name])) for name in seen.placed
    }


def test_each_request_ends_with_its_verifications_in_order(recorded: Recorded) -> None:
    found = rows(
        recorded.log,
        "SELECT request_id, drafts_placed, drafts_accepted FROM requests "
        "WHERE drafts_placed IS NOT NULL",
    )
    seen = recorded.seen
    assert {name: (list(placed), list(accepted)) for name, placed, accepted in found} == {
        name: (seen.placed[name], seen.accepted[name]) for name in seen.placed
    }


def test_rejected_drafts_are_work_for_nothing(recorded: Recorded) -> None:
    seen = recorded.seen
    num_rejected = total(seen.placed) - total(seen.accepted) - seen.padding
    assert recorded.one("SELECT sum(num_rejected_draft_tokens) FROM token_work") == (num_rejected,)


def test_drafting_is_timed_wherever_the_model_ran(recorded: Recorded) -> None:
    assert recorded.one(
        "SELECT count(*) FILTER (draft_ns > 0) = count(*) FROM steps WHERE num_scheduled_tokens > 0"
    ) == (True,)


def test_the_record_names_the_method(recorded: Recorded) -> None:
    settings, num_drafts = recorded.one("SELECT settings, num_speculative_tokens FROM engines")
    assert json.loads(settings)["speculation"]["method"] == "ngram"
    assert num_drafts == NUM_DRAFTS


def test_the_metrics_count_the_same(recorded: Recorded) -> None:
    drafts, seen = recorded.snapshot.drafts, recorded.seen
    assert drafts is not None
    assert drafts.num_drafts == sum(map(len, seen.placed.values()))
    assert drafts.num_draft_tokens == total(seen.placed)
    assert drafts.num_accepted_tokens == total(seen.accepted)
    each = [count for counts in seen.accepted.values() for count in counts]
    assert drafts.num_accepted_tokens_per_pos == [
        sum(count > place for count in each) for place in range(NUM_DRAFTS)
    ]

"""One vLLM without a KV connector: healthy, in a storm, out of slots, with grammars, with adapters.

Each run must be recorded with its own reasons. What the record says of preemptions is compared with
vLLM's own counter and with books that the witness's step outputs alone were enough for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.whole_line.vllm.adapters import write_adapter
from tests.whole_line.vllm.ledger import RequestLedger
from tests.whole_line.vllm.load import Stretch, completion
from tests.whole_line.vllm.recording import Installed, RecordedVllm, recorded_vllm

MAX_NUM_SEQS = 32
NUM_BLOCKS = 64
ADAPTERS = ("ada", "bert", "carl")
COUNTER = "vllm:num_preemptions_total"
STORM_RULES = {"kv-preemption-pressure", "kv-preemption-thrash"}


@pytest.fixture(scope="module")
def vllm(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedVllm]:
    folder = tmp_path_factory.mktemp("vllm")
    modules = [f"{name}={write_adapter(folder / name, seed)}" for seed, name in enumerate(ADAPTERS)]
    flags = (
        *("--max-model-len", "1024", "--max-num-seqs", str(MAX_NUM_SEQS)),
        *("--num-gpu-blocks-override", str(NUM_BLOCKS)),
        *("--enable-lora", "--max-loras", "1", "--max-lora-rank", "8", "--lora-modules", *modules),
    )
    with recorded_vllm(installed, folder, flags) as running:
        yield running


# ----------------------------------------------------------------------------------- a healthy run


@pytest.fixture(scope="module")
def healthy(vllm: RecordedVllm) -> Stretch:
    """Four clients that the engine serves with ease."""
    return vllm.play([completion(seed, 48, 24) for seed in range(24)], at_once=4)


def test_a_healthy_run_has_no_finding(vllm: RecordedVllm, healthy: Stretch) -> None:
    said = vllm.diagnosed(healthy)
    assert said.findings == ()
    assert said.verdict.rule == "no-scheduler-fault"


def test_a_healthy_run_sets_nobody_aside(vllm: RecordedVllm, healthy: Stretch) -> None:
    assert vllm.skip_reasons(healthy) == set()
    assert vllm.stop_reasons(healthy) == set()


def test_all_steps_were_recorded(vllm: RecordedVllm, healthy: Stretch) -> None:
    assert vllm.diagnosed(healthy).steps.num_steps_missing == 0


# ----------------------------------------------------------------------------------- a storm of KV


@dataclass(frozen=True, slots=True)
class Storm:
    """28 clients at once whose answers need three times the pool."""

    stretch: Stretch
    num_counted_by_vllm: int
    ledgers: dict[str, RequestLedger]

    def total(self, name: str) -> int:
        """Returns the sum of one number over the witness's books."""
        return sum(getattr(book, name) for book in self.ledgers.values())


@pytest.fixture(scope="module")
def storm(vllm: RecordedVllm, healthy: Stretch) -> Storm:
    before, known = vllm.server.metric(COUNTER), set(vllm.ledgers())
    stretch = vllm.play([completion(1000 + seed, 64, 160) for seed in range(84)], at_once=28)
    counted = round(vllm.server.metric(COUNTER) - before)
    books = {name: book for name, book in vllm.ledgers().items() if name not in known}
    return Storm(stretch, counted, books)


def test_the_storm_is_one(storm: Storm) -> None:
    assert storm.num_counted_by_vllm > 30
    assert storm.total("num_recomputed") > 1000


def test_preemptions_by_cause_add_up_to_vllms_counter(vllm: RecordedVllm, storm: Storm) -> None:
    by_cause = vllm.rows(
        "SELECT cause, count(*) AS n FROM preemptions "
        f"WHERE {storm.stretch.where} GROUP BY cause ORDER BY cause"
    )
    assert by_cause == [{"cause": "kv_full", "n": storm.num_counted_by_vllm}]
    assert storm.total("num_preemptions") == storm.num_counted_by_vllm


def test_each_requests_losses_are_those_of_the_step_outputs(
    vllm: RecordedVllm, storm: Storm
) -> None:
    recorded = vllm.rows(
        "SELECT count(*) AS preemptions, sum(num_computed_tokens_lost)::BIGINT AS lost, "
        "sum(num_tokens_recomputed)::BIGINT AS recomputed, "
        "sum(num_tokens_regained_from_prefix_cache)::BIGINT AS regained "
        f"FROM preemptions WHERE {storm.stretch.where} GROUP BY request"
    )
    heard = [
        (book.num_preemptions, book.num_lost, book.num_recomputed, book.num_regained)
        for book in storm.ledgers.values()
        if book.num_preemptions
    ]
    assert sorted(tuple(row.values()) for row in recorded) == sorted(heard)


def test_steps_count_the_recomputed_tokens_of_the_step_outputs(
    vllm: RecordedVllm, storm: Storm
) -> None:
    (row,) = vllm.rows(
        f"SELECT sum(num_recomputed_tokens)::BIGINT AS n FROM steps WHERE {storm.stretch.where}"
    )
    assert row["n"] == storm.total("num_recomputed")


def test_the_account_closes(vllm: RecordedVllm, storm: Storm) -> None:
    account = vllm.diagnosed(storm.stretch).accounting
    assert account.unattributed == 0
    assert account.loss.identity_holds is True
    assert account.work.adds_up is True


def test_each_eviction_says_for_whom_and_what_it_brought(vllm: RecordedVllm, storm: Storm) -> None:
    (row,) = vllm.rows(
        "SELECT count(*) AS n, count(beneficiary) AS named, "
        "count(*) FILTER (num_blocks_needed > num_blocks_free_before) AS short, "
        "count(*) FILTER (num_blocks_freed > 0) AS freed "
        f"FROM preemptions WHERE {storm.stretch.where}"
    )
    assert set(row.values()) == {storm.num_counted_by_vllm}


def test_the_storm_is_named_with_its_evidence(vllm: RecordedVllm, storm: Storm) -> None:
    said = vllm.diagnosed(storm.stretch)
    assert said.verdict.rule in STORM_RULES
    evidence = {item.name: item.value for item in said.findings[0].evidence}
    assert evidence
    assert None not in evidence.values()


# ------------------------------------------------------------------------------- out of slots only


@pytest.fixture(scope="module")
def slots(vllm: RecordedVllm, storm: Storm) -> Stretch:
    """Requests of one block each, far more than may run at once: half of the pool stays free."""
    return vllm.play([completion(2000 + seed, 12, 18) for seed in range(1200)])


def test_slots_are_what_holds_admission_up(vllm: RecordedVllm, slots: Stretch) -> None:
    assert vllm.stop_reasons(slots) == {"max_num_seqs"}
    assert vllm.skip_reasons(slots) == set()


def test_the_slots_are_named_and_not_kv(vllm: RecordedVllm, slots: Stretch) -> None:
    found = vllm.diagnosed(slots).findings
    assert [finding.rule for finding in found] == ["seq-slot-limit"]


# --------------------------------------------------------------------------------- a grammar burst


def grammar(seed: int) -> dict[str, object]:
    """Returns a grammar that no other request has, large enough to be compiled for a while."""
    names = [f"field_{seed}_{number}" for number in range(30)]
    item = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    return {"json": {"type": "object", "properties": dict.fromkeys(names, item)}}


@pytest.fixture(scope="module")
def grammars(vllm: RecordedVllm, slots: Stretch) -> Stretch:
    return vllm.play(
        [completion(3000 + n, 16, 12, structured_outputs=grammar(n)) for n in range(16)]
    )


def test_requests_wait_for_their_grammars(vllm: RecordedVllm, grammars: Stretch) -> None:
    assert vllm.skip_reasons(grammars) == {"grammar_compiling"}


def test_each_grammar_has_a_key_and_its_time(vllm: RecordedVllm, grammars: Stretch) -> None:
    (keys,) = vllm.rows(
        f"SELECT count(DISTINCT grammar_key) AS n FROM request_arrivals WHERE {grammars.where}"
    )
    (ready,) = vllm.rows(
        "SELECT count(DISTINCT request) AS n FROM request_events "
        f"WHERE kind = event_kind('grammar_ready') AND {grammars.where}"
    )
    assert (keys["n"], ready["n"]) == (16, 16)


# ----------------------------------------------------------------------------------- a LoRA's slot


@pytest.fixture(scope="module")
def adapters(vllm: RecordedVllm, grammars: Stretch) -> Stretch:
    """Three adapters in turn, of which one at a time may run."""
    return vllm.play([completion(4000 + n, 16, 24) | {"model": ADAPTERS[n % 3]} for n in range(18)])


def test_requests_wait_for_an_adapters_slot(vllm: RecordedVllm, adapters: Stretch) -> None:
    assert vllm.skip_reasons(adapters) == {"lora_slots"}


def test_no_step_had_more_adapters_than_the_cap(vllm: RecordedVllm, adapters: Stretch) -> None:
    (row,) = vllm.rows(f"SELECT max(num_adapters) AS n FROM steps WHERE {adapters.where}")
    (names,) = vllm.rows(
        f"SELECT count(DISTINCT adapter) AS n FROM request_arrivals WHERE {adapters.where}"
    )
    assert (row["n"], names["n"]) == (1, 3)


# ---------------------------------------------------------------------------------- the whole of it


def test_the_engine_is_described(vllm: RecordedVllm, healthy: Stretch) -> None:
    (engine,) = vllm.rows(
        "SELECT source, version, device, model, max_num_seqs, max_loras, block_size, "
        "num_usable_blocks, dp_rank FROM engines"
    )
    assert engine == {
        "source": "vllm",
        "version": "0.32.0",
        "device": "cpu",
        "model": "tiny-llama",
        "max_num_seqs": MAX_NUM_SEQS,
        "max_loras": 1,
        "block_size": 32,
        "num_usable_blocks": NUM_BLOCKS - 1,
        "dp_rank": 0,
    }


def test_our_scheduler_decides_the_same_in_every_step(
    vllm: RecordedVllm, adapters: Stretch
) -> None:
    """All five runs, replayed from the log alone."""
    (found,) = vllm.replay_differences().values()
    assert found == []


def test_the_plugin_never_had_to_swallow_an_error(vllm: RecordedVllm, adapters: Stretch) -> None:
    (row,) = vllm.rows("SELECT max(num_recorder_errors) AS n FROM heartbeats")
    assert row["n"] == 0
    assert vllm.plugin_said() == []

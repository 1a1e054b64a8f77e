"""The worker at the step: what it copies when, and what it never touches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from engine.config import KVConnectorConfig
from engine.connectors import KVConnectorMetadata, KVLoad
from engine.connectors.block_keys import BlockKeys
from engine.connectors.block_store import Payload
from engine.connectors.faults import Fault, FaultPlan
from engine.connectors.host_memory import HostMemoryStore
from engine.connectors.store_connector import StoreConnector
from engine.connectors.worker import KVTransferWorker, Placed, TransferReport
from engine.request import Request, RequestStatus
from engine.sampling import SamplingParams
from engine.scheduler import SchedulerOutput

BLOCK_SIZE = 4
PROMPT = list(range(100, 116))
NUM_BLOCKS = len(PROMPT) // BLOCK_SIZE


@dataclass
class Blocks:
    """A cache of 64 blocks of two bytes, whose content is its own number; it notes who writes."""

    block_bytes: int = 2
    written: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.content = np.repeat(np.arange(64, dtype=np.uint8)[:, None], 2, axis=1)

    def read(self, block_ids: Sequence[int]) -> Payload:
        return self.content[list(block_ids)].copy()

    def write(self, block_ids: Sequence[int], payload: Payload) -> None:
        self.written += block_ids
        self.content[list(block_ids)] = payload


class Bench:
    """A worker, and the requests and steps that a test makes up."""

    made: ClassVar[list[Bench]] = []

    def __init__(self, *faults: str, role: str = "kv_both", lease: float | None = None) -> None:
        self.now = 0
        plan = FaultPlan([Fault.parse(text) for text in faults])
        config = KVConnectorConfig(role=role, lease_seconds=lease)  # type: ignore[arg-type]
        self.store, self.blocks = HostMemoryStore(1 << 20), Blocks()
        keys = BlockKeys(BLOCK_SIZE, b"", is_shared=False)
        self.connector = StoreConnector(
            self.store, config, keys, faults=plan, clock=lambda: self.now
        )
        self.worker = KVTransferWorker(
            self.store, self.connector, self.blocks, faults=plan, clock=lambda: self.now
        )
        self.made.append(self)
        self.num_requests = 0
        self.placed: dict[str, Placed] = {}

    def request(self, name: str, prompt: Sequence[int] = PROMPT, **fields: object) -> Request:
        self.num_requests += 1
        return Request(
            request_id=name,
            number=self.num_requests,
            prompt_token_ids=prompt,
            sampling=SamplingParams(max_tokens=4),
            **fields,  # type: ignore[arg-type]
        )

    def ended(self, name: str, block_ids: Sequence[int]) -> bool:
        """A request that ran to the end of its prompt and one output ends; are blocks kept?"""
        request = self.request(name)
        request.token_ids.append(7)
        request.status, request.num_computed_tokens = RequestStatus.RUNNING, len(PROMPT)
        kept = self.connector.delays_free(request)
        request.status = RequestStatus.FINISHED
        self.placed[name] = Placed(block_ids, len(PROMPT))
        return kept

    def store_prompt(self) -> None:
        """Stores the blocks of the prompt, as blocks 1 to 4."""
        self.ended("first", range(1, 1 + NUM_BLOCKS))
        self.step(finished={"first"})
        self.step_until(lambda report: "first" in report.saves_finished)

    def look_up(self, name: str) -> int | None:
        return self.connector.num_external_tokens(self.request(name), 0)

    def step(
        self,
        *loads: KVLoad,
        finished: set[str] | None = None,
        preempted: set[str] | None = None,
        given_up: Sequence[str] = (),
    ) -> TransferReport:
        output = SchedulerOutput(
            step=0,
            finished_req_ids=frozenset(finished or ()),
            preempted_req_ids=frozenset(preempted or ()),
            kv_connector_metadata=KVConnectorMetadata(loads=loads, given_up=tuple(given_up)),
        )
        return self.worker.begin_step(output, self.placed.get) or TransferReport()

    def step_until(self, is_there: object) -> TransferReport:
        """Steps until a report is as wanted."""
        for _ in range(1000):
            report = self.step()
            if is_there(report):  # type: ignore[operator]
                return report
            self.worker.wait(0.05)
        raise AssertionError("it was never reported")

    def drain(self) -> TransferReport:
        """Lets the threads do all that is due, then steps."""
        self.worker.close()
        return self.step()


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    while Bench.made:
        Bench.made.pop().worker.close()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def load(name: str, *, first_block: int = 20, is_async: bool = True) -> KVLoad:
    return KVLoad(
        request_id=name,
        block_ids=(list(range(first_block, first_block + NUM_BLOCKS)),),
        num_local_tokens=0,
        num_external_tokens=len(PROMPT),
        is_async=is_async,
    )


def test_what_a_request_left_comes_back_into_the_blocks_of_another(bench: Bench) -> None:
    bench.store_prompt()
    assert bench.look_up("b") == len(PROMPT)
    assert not bench.step(load("b")).finished_recving
    report = bench.step_until(lambda report: report.finished_recving)
    assert report.finished_recving == {"b"}
    assert bench.blocks.content[20:24, 0].tolist() == [1, 2, 3, 4]


def test_what_is_stored_already_is_not_kept_again(bench: Bench) -> None:
    bench.store_prompt()
    assert not bench.ended("second", range(5, 9))


def test_what_is_on_its_way_already_is_not_kept_again(bench: Bench) -> None:
    assert bench.ended("first", range(1, 5))
    assert not bench.ended("second", range(5, 9))


def test_blocks_are_copied_before_the_step_that_writes_into_them(bench: Bench) -> None:
    assert bench.ended("first", range(1, 5))
    bench.step(finished={"first"})
    bench.blocks.content[1:5] = 99
    bench.step_until(lambda report: report.saves_finished)
    assert bench.look_up("b") == len(PROMPT)
    bench.step(load("b"))
    bench.step_until(lambda report: report.finished_recving)
    assert bench.blocks.content[20:24, 0].tolist() == [1, 2, 3, 4]


def test_the_blocks_of_a_request_are_acknowledged_once(bench: Bench) -> None:
    bench.ended("first", range(1, 5))
    assert bench.step(finished={"first"}).saves_started == {"first"}
    report = bench.step_until(lambda report: report.finished_sending)
    assert (report.saves_finished, report.finished_sending) == ({"first"}, {"first"})
    assert not bench.drain().finished_sending


def test_an_evicted_request_leaves_its_full_blocks_and_keeps_none(bench: Bench) -> None:
    assert bench.look_up("a") == 0
    bench.placed["a"] = Placed(range(1, 4), 2 * BLOCK_SIZE + 1)
    assert bench.step(preempted={"a"}).saves_started == {"a"}
    report = bench.step_until(lambda report: report.saves_finished)
    assert not report.finished_sending
    assert bench.look_up("b") == 2 * BLOCK_SIZE


def test_what_was_computed_from_a_hole_is_not_stored(bench: Bench) -> None:
    bench.look_up("a")
    bench.placed["a"] = Placed(range(1, 5), 0)  # what the runner says of such a request
    assert not bench.step(preempted={"a"}).saves_started


def test_a_consumer_stores_nothing() -> None:
    bench = Bench(role="kv_consumer")
    assert not bench.ended("first", range(1, 5))
    bench.look_up("a")
    bench.placed["a"] = Placed(range(1, 5), 16)
    assert not bench.step(preempted={"a"}).saves_started


def test_a_producer_loads_nothing() -> None:
    bench = Bench(role="kv_producer")
    bench.store_prompt()
    assert bench.look_up("b") == 0


@pytest.mark.parametrize("how", ["given_up", "finished"])
def test_a_load_that_nobody_waits_for_touches_no_block(how: str) -> None:
    bench = Bench("load=delay:0.05")
    bench.store_prompt()
    bench.look_up("b")
    bench.step(load("b"))
    bench.step(**{how: {"b"}})  # type: ignore[arg-type]
    report = bench.step_until(lambda report: report.finished_recving)
    assert report.finished_recving == {"b"}
    assert bench.blocks.written == []


def test_a_load_that_was_given_up_once_it_was_there_touches_no_block(bench: Bench) -> None:
    bench.store_prompt()
    bench.look_up("b")
    bench.step(load("b"))
    bench.worker.settle(60.0)
    assert bench.step(given_up=["b"]).finished_recving == {"b"}
    assert bench.blocks.written == []


def test_a_load_that_hangs_ends_when_it_is_given_up() -> None:
    bench = Bench("load=stall")
    bench.store_prompt()
    bench.look_up("b")
    bench.step(load("b"))
    assert not bench.step().finished_recving
    assert bench.step(given_up=["b"]).finished_recving == {"b"}


def test_a_load_that_is_lost_is_never_heard_of() -> None:
    bench = Bench("load=lose")
    bench.store_prompt()
    bench.look_up("b")
    bench.step(load("b"))
    bench.step(given_up=["b"])
    assert not bench.drain().finished_recving


def test_a_late_end_is_not_taken_for_that_of_a_new_load() -> None:
    """Its lease ended, and the same request loads again while the old load goes on."""
    bench = Bench("load=delay:0.05")
    bench.store_prompt()
    bench.look_up("b")
    bench.step(load("b"))
    bench.step(given_up=["b"])
    bench.step(load("b", first_block=30))
    bench.step_until(lambda report: report.finished_recving)
    assert bench.blocks.written == [30, 31, 32, 33]
    assert not bench.drain().finished_recving
    assert bench.blocks.written == [30, 31, 32, 33]


def test_a_load_that_fails_as_a_whole_is_not_offered_again() -> None:
    bench = Bench("load=fail")
    bench.store_prompt()
    request = bench.request("b")
    assert bench.connector.num_external_tokens(request, 0) == len(PROMPT)
    bench.step(load("b"))
    report = bench.step_until(lambda report: report.finished_recving)
    assert report.failed_recving == {"b"}
    assert bench.connector.num_external_tokens(request, 0) == 0
    assert bench.look_up("c") == len(PROMPT)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_load_that_fails_half_way_names_the_blocks_that_lack(is_async: bool) -> None:
    bench = Bench("load=fail_half")
    bench.store_prompt()
    request = bench.request("b")
    bench.connector.num_external_tokens(request, 0)
    report = bench.step(load("b", is_async=is_async))
    if is_async:
        report = bench.step_until(lambda report: report.finished_recving)
    assert report.invalid_block_ids == {22, 23}
    assert bench.blocks.written == [20, 21]
    assert bench.connector.num_external_tokens(request, 0) == 2 * BLOCK_SIZE


def test_a_save_that_fails_says_so_and_lets_the_blocks_go() -> None:
    bench = Bench("save=fail")
    bench.ended("first", range(1, 5))
    bench.step(finished={"first"})
    report = bench.step_until(lambda report: report.saves_failed)
    assert report.finished_sending == {"first"}
    assert bench.look_up("b") == 0


def test_a_save_that_is_lost_is_acknowledged_and_not_there() -> None:
    bench = Bench("save=lose")
    bench.ended("first", range(1, 5))
    bench.step(finished={"first"})
    report = bench.step_until(lambda report: report.finished_sending)
    assert report.saves_finished == {"first"}
    assert bench.look_up("b") == 0


def test_an_acknowledgement_that_is_lost_leaves_the_blocks_kept() -> None:
    bench = Bench("ack=lose")
    bench.ended("first", range(1, 5))
    bench.step(finished={"first"})
    bench.step_until(lambda report: report.saves_finished)
    assert not bench.drain().finished_sending


def test_an_acknowledgement_that_is_late_comes_after_the_save() -> None:
    bench = Bench("ack=delay:0.05")
    bench.ended("first", range(1, 5))
    bench.step(finished={"first"})
    report = bench.step_until(lambda report: report.saves_finished)
    assert not report.finished_sending
    bench.step_until(lambda report: report.finished_sending)


def test_an_acknowledgement_that_says_no_is_a_failed_save() -> None:
    bench = Bench("ack=fail")
    bench.ended("first", range(1, 5))
    bench.step(finished={"first"})
    report = bench.step_until(lambda report: report.finished_sending)
    assert (report.saves_failed, report.saves_finished) == ({"first"}, set())


def test_blocks_whose_lease_is_over_are_not_read() -> None:
    bench = Bench(lease=5.0)
    assert bench.ended("first", range(1, 5))
    bench.now = 5_000_000_000
    report = bench.step(finished={"first"})
    assert (report.saves_started, report.finished_sending) == (set(), {"first"})
    assert bench.ended("second", range(1, 5))  # nobody saves them any more


def test_a_look_up_that_is_late_has_no_answer_until_then() -> None:
    bench = Bench("lookup=delay:2")
    bench.store_prompt()
    request = bench.request("b")
    assert bench.connector.num_external_tokens(request, 0) is None
    bench.now = 2_000_000_000
    assert bench.connector.num_external_tokens(request, 0) == len(PROMPT)


@pytest.mark.parametrize(("kind", "answer"), [("stall", None), ("lose", None), ("fail", 0)])
def test_a_look_up_that_goes_wrong(kind: str, answer: int | None) -> None:
    bench = Bench(f"lookup={kind}")
    bench.store_prompt()
    request = bench.request("b")
    bench.connector.num_external_tokens(request, 0)
    bench.now = 1 << 60
    assert bench.connector.num_external_tokens(request, 0) == answer


@pytest.mark.parametrize(
    "other",
    [{"adapter": "a"}, {"cache_salt": "s"}, {"adapter": "b", "adapter_key": "b@2"}],
    ids=["adapter", "salt", "adapter's weights"],
)
def test_kv_of_other_circumstances_is_not_found(bench: Bench, other: dict) -> None:
    bench.store_prompt()
    assert bench.connector.num_external_tokens(bench.request("b", **other), 0) == 0


def test_of_an_adapter_without_a_digest_nothing_is_shared() -> None:
    keys: list[bytes] = []
    adapted = Bench().request("a", adapter="poet")
    BlockKeys(BLOCK_SIZE, b"", is_shared=True).extend(keys, adapted)
    assert keys == []
    adapted.adapter_key = "poet\0digest"
    BlockKeys(BLOCK_SIZE, b"", is_shared=True).extend(keys, adapted)
    assert len(keys) == NUM_BLOCKS


def test_a_store_that_breaks_is_a_failed_save(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(key: bytes, payload: Payload) -> None:
        raise MemoryError

    monkeypatch.setattr(bench.store, "write", breaks)
    bench.ended("first", range(1, 5))
    bench.step(finished={"first"})
    report = bench.step_until(lambda report: report.finished_sending)
    assert report.saves_failed == {"first"}


def test_with_too_much_on_its_way_nothing_further_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.connectors.worker.MAX_BYTES_ON_THEIR_WAY", 0)
    assert not bench.ended("first", range(1, 5))

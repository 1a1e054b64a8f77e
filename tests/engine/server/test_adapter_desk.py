"""Requests wait for adapters that are being read, and the step loop does not."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.lora.module_spec import AdapterModule
from engine.lora.reading import LoadedAdapter
from engine.lora.store import AdapterStore
from engine.sampling import SamplingParams
from engine.server.adapter_desk import AdapterDesk
from engine.server.messages import AdapterRead, AddRequest
from tests.engine.server.server_process import SECONDS

SQL = AdapterModule(name="sql", path=Path("sql"))


def asked(name: str, rejection: str | None = None) -> AddRequest:
    return AddRequest(
        request_id=name,
        prompt_token_ids=[1],
        sampling=SamplingParams(),
        priority=0,
        adapter="sql",
        received_ns=0,
        tokenized_ns=None,
        trace_id=None,
        parent_span_id=None,
        trace_sampled=None,
        rejection=rejection,
    )


class Desk:
    """A desk whose adapter `sql` is known and has left host memory; reading it waits for `go`."""

    def __init__(self, outcome: Callable[[], LoadedAdapter] | None = None) -> None:
        self.go = threading.Event()
        self.num_reads = 0
        self.inbox: queue.SimpleQueue[AdapterRead] = queue.SimpleQueue()
        self._outcome = outcome or (lambda: LoadedAdapter(digest="1", rank=1, pairs={}))
        self.store = AdapterStore(self._read, max_cpu_loras=1)
        self.store.register(SQL, LoadedAdapter(digest="1", rank=1, pairs={}), in_use=())
        other = AdapterModule(name="other", path=Path("other"))
        self.store.register(other, LoadedAdapter(digest="2", rank=1, pairs={}), in_use=())
        self.desk = AdapterDesk(self.store, frozenset, self.inbox.put)

    def _read(self, path: Path) -> LoadedAdapter:
        assert self.go.wait(SECONDS)
        self.num_reads += 1
        return self._outcome()

    def read(self) -> AdapterRead:
        self.go.set()
        return self.inbox.get(timeout=SECONDS)


def test_a_request_comes_back_once_its_adapter_has_been_read() -> None:
    desk = Desk()
    assert [desk.desk.holds_back(asked(name)) for name in ("a", "b")] == [True, True]
    assert desk.desk.released(desk.read()) == [(asked("a"), None), (asked("b"), None)]
    assert desk.num_reads == 1
    assert not desk.desk.holds_back(asked("c"))


def test_a_request_that_is_aborted_meanwhile_comes_back_once() -> None:
    desk = Desk()
    desk.desk.holds_back(asked("a"))
    desk.desk.holds_back(asked("b"))
    assert desk.desk.give_back(("a",)) == [asked("a")]
    assert desk.desk.released(desk.read()) == [(asked("b"), None)]
    assert desk.desk.give_back() == []


def fails() -> LoadedAdapter:
    raise MemoryError("no memory")


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (fails, "sql cannot be loaded: MemoryError: no memory"),
        (lambda: LoadedAdapter(digest="9", rank=1, pairs={}), "has changed on disk"),
    ],
)
def test_whatever_a_file_does_its_requests_hear_of_it(
    outcome: Callable[[], LoadedAdapter], complaint: str
) -> None:
    desk = Desk(outcome)
    desk.desk.holds_back(asked("a"))
    ((request, error),) = desk.desk.released(desk.read())
    assert request == asked("a")
    assert complaint in (error or "")


def test_a_request_that_is_only_recorded_reads_nothing() -> None:
    assert not Desk().desk.holds_back(asked("a", rejection="too many"))

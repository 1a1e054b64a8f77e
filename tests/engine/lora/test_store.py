"""Which adapters stay in host memory, and what names stand for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.lora.adapter_error import AdapterError
from engine.lora.module_spec import AdapterModule, parse_module
from engine.lora.reading import LoadedAdapter
from engine.lora.slots import AdapterSlots
from engine.lora.store import AdapterStore


def made(digest: str) -> LoadedAdapter:
    return LoadedAdapter(digest=digest, rank=1, pairs={})


class Shelf:
    """Adapters by path; what lies there is its digest."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        self.digests = dict(digests)

    def read(self, path: Path) -> LoadedAdapter:
        return made(self.digests[path.name])


def store_of(max_cpu_loras: int, **digests: str) -> tuple[AdapterStore, Shelf]:
    shelf = Shelf(digests)
    store = AdapterStore(shelf.read, max_cpu_loras=max_cpu_loras)
    for name in digests:
        store.load(AdapterModule(name=name, path=Path(name)))
    return store, shelf


def test_the_one_used_longest_ago_goes_first() -> None:
    store, _ = store_of(2, a="1", b="2")
    store.resident("a")
    store.load(AdapterModule(name="c", path=Path("a")))
    assert store.resident_adapters == ["a", "c"]


def test_what_a_request_needs_stays_whatever_the_limit() -> None:
    store, _ = store_of(1, a="1")
    for name in ("b", "c"):
        store.register(AdapterModule(name=name, path=Path(name)), made(name), in_use={"a", "b"})
    assert store.resident_adapters == ["a", "b", "c"]


def test_a_name_that_gets_other_weights_becomes_another_version() -> None:
    store, shelf = store_of(4, sql="1")
    shelf.digests["sql"] = "2"
    again = store.load(AdapterModule(name="sql", path=Path("sql")))
    assert (again.adapter, store.names["sql"]) == ("sql@2", again)
    assert store.versions["sql"].cache_key != again.cache_key


def test_the_same_weights_are_the_same_version_whenever_they_come() -> None:
    store, shelf = store_of(4, sql="1")
    for digest in ("2", "1"):
        shelf.digests["sql"] = digest
        last = store.load(AdapterModule(name="sql", path=Path("sql")))
    assert last.adapter == "sql"


def test_a_version_never_takes_a_name_that_is_another_adapters() -> None:
    store, shelf = store_of(4, **{"sql@2": "0", "sql": "1"})
    shelf.digests["sql"] = "2"
    assert store.load(AdapterModule(name="sql", path=Path("sql"))).adapter == "sql@3"


def test_an_unloaded_adapter_goes_at_once_unless_requests_need_it() -> None:
    store, _ = store_of(4, a="1", b="2")
    store.unregister("a", in_use={"a"})
    store.unregister("b", in_use={"a"})
    assert store.resident_adapters == ["a"]
    assert store.names == {}


def test_what_is_not_loaded_cannot_be_unloaded() -> None:
    store, _ = store_of(4)
    with pytest.raises(AdapterError, match="'a' is not loaded"):
        store.unregister("a", in_use=())


def test_weights_that_changed_behind_the_engines_back_are_refused() -> None:
    store, shelf = store_of(1, a="1", b="2")
    shelf.digests["a"] = "3"
    with pytest.raises(AdapterError, match="'a' has changed on disk"):
        store.keep("a", shelf.read(Path("a")), in_use=())


def test_slots_make_room_for_the_batch_only() -> None:
    slots = AdapterSlots(2)
    assert [slots.take("a", {"a"}), slots.take("b", {"a", "b"})] == [(0, True), (1, True)]
    assert slots.take("a", {"a"}) == (0, False)
    assert slots.take("c", {"a", "c"}) == (1, True)
    assert slots.slot_of("b") is None
    with pytest.raises(RuntimeError, match="needs 3 adapters but there are 2 slots"):
        slots.take("d", {"a", "c", "d"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sql=/a/b=c", AdapterModule(name="sql", path=Path("/a/b=c"))),
        (
            '{"name": "sql", "path": "p", "base_model_name": "m"}',
            AdapterModule(name="sql", path=Path("p"), base_model_name="m"),
        ),
    ],
)
def test_a_module_is_a_name_and_a_path(text: str, expected: AdapterModule) -> None:
    assert parse_module(text) == expected


@pytest.mark.parametrize(
    "text", ["sql", "=p", "sql=", "{", '{"name": "sql"}', '{"name": 1, "path": "p"}', "a b=p"]
)
def test_what_names_no_module_is_refused(text: str) -> None:
    with pytest.raises(AdapterError):
        parse_module(text)

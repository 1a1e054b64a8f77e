"""Whose adapter a request of the batch has, from its first step to its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.lora.batch import AdapterBatch
from engine.lora.layers import adapt_layers
from engine.lora.reading import LoadedAdapter
from tests.engine.runner.builders import new, step, very_small_llama

EMPTY = LoadedAdapter(digest="", rank=1, pairs={})
ONE = np.ones(1, np.int64)


def batch_of(**weights: LoadedAdapter) -> AdapterBatch:
    return AdapterBatch(adapt_layers(very_small_llama(), max_loras=1, max_lora_rank=1), weights.get)


def test_a_request_keeps_its_adapter_when_it_is_preempted() -> None:
    batch = batch_of(sql=EMPTY)
    batch.apply(step({"a": 1}, replace(new("a", [1], [1]), adapter="sql")))
    batch.apply(step({}, preempted=["a"]))
    assert batch.mapping(["a"], ONE) is not None


def test_an_id_that_comes_again_without_an_adapter_has_none() -> None:
    batch = batch_of(sql=EMPTY)
    batch.apply(step({"a": 1}, replace(new("a", [1], [1]), adapter="sql")))
    batch.apply(step({"a": 1}, new("a", [1], [1]), finished=["a"]))
    assert batch.mapping(["a"], ONE) is None


def test_an_adapter_on_the_device_is_not_copied_again() -> None:
    batch = batch_of(sql=EMPTY)
    batch.apply(step({"a": 1}, replace(new("a", [1], [1]), adapter="sql")))
    for _ in range(3):
        batch.mapping(["a"], ONE)
    assert batch.num_placed == 1


def test_an_adapter_that_is_nowhere_is_found_out() -> None:
    batch = batch_of()
    batch.apply(step({"a": 1}, replace(new("a", [1], [1]), adapter="sql")))
    with pytest.raises(RuntimeError, match="'sql' is not in host memory"):
        batch.mapping(["a"], ONE)

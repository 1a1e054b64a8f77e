from __future__ import annotations

import itertools

import pytest

from benchmarks.scheduling import workloads
from benchmarks.scheduling.workloads import BLOCK_SIZE, MAX_MODEL_LEN, Workload


@pytest.mark.parametrize("load", workloads.quick(), ids=lambda load: load.name)
def test_no_two_requests_share_a_block(load: Workload) -> None:
    blocks = [
        tuple(request.prompt[i : i + BLOCK_SIZE])
        for request in map(load.request, range(100))
        for i in range(0, len(request.prompt), BLOCK_SIZE)
    ]
    assert len(set(blocks)) == len(blocks)


@pytest.mark.parametrize("load", workloads.compared(), ids=lambda load: load.name)
def test_every_request_fits_into_the_model(load: Workload) -> None:
    requests = [load.request(index) for index in range(load.running + 50)]
    assert max(len(r.prompt) + r.max_tokens for r in requests) <= MAX_MODEL_LEN


def test_requests_that_are_there_from_the_beginning_end_at_different_times() -> None:
    load = workloads.closed_loop(64, True, scarce=False)
    ends = [load.request(index).max_tokens for index in range(64)]
    assert len(set(ends)) > 40


def test_later_requests_of_a_loop_have_64_to_192_tokens() -> None:
    load = workloads.closed_loop(16, True, scarce=True)
    lengths = [load.request(index).max_tokens for index in range(16, 500)]
    assert (min(lengths), max(lengths)) == (64, 192)


def test_each_size_is_compared_with_prefix_caching_on_and_off() -> None:
    rows = [(load.name, load.running, load.prefix_caching) for load in workloads.compared()]
    wanted = itertools.product(["decode"], [1, 16, 64, 256, 1024], [False, True])
    assert set(wanted) <= set(rows)
    assert len(set(rows)) == len(rows)

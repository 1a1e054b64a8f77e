"""A vLLM with two data-parallel ranks, one of which gets nearly all of the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.whole_line.vllm.load import Stretch, completion, post_all
from tests.whole_line.vllm.recording import Installed, RecordedVllm, recorded_vllm

NUM_BY_RANK = (20, 4)
MAX_NUM_SEQS = 8
RANK_HEADER = "X-data-parallel-rank"

IMBALANCE = """
SELECT e.dp_rank, count(DISTINCT a.request) AS num_requests,
       max(s.num_waiting) AS most_waiting, max(s.num_running) AS most_running
FROM engines e
JOIN request_arrivals a USING (engine)
JOIN steps s USING (engine)
GROUP BY e.dp_rank ORDER BY e.dp_rank
"""


@pytest.fixture(scope="module")
def vllm(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedVllm]:
    flags = (
        *("--max-model-len", "1024", "--max-num-seqs", str(MAX_NUM_SEQS)),
        *("--num-gpu-blocks-override", "128"),
        *("--data-parallel-size", "2", "--api-server-count", "1"),
    )
    with recorded_vllm(installed, tmp_path_factory.mktemp("vllm"), flags) as running:
        yield running


async def send_to_each(url: str) -> list[Any]:
    groups = [
        post_all(
            url,
            [completion(100 * rank + seed, 64, 60) for seed in range(number)],
            headers={RANK_HEADER: str(rank)},
        )
        for rank, number in enumerate(NUM_BY_RANK)
    ]
    return [result for results in await asyncio.gather(*groups) for result in results]


@pytest.fixture(scope="module")
def lopsided(vllm: RecordedVllm) -> Stretch:
    start_ts = time.time_ns()
    results = asyncio.run(send_to_each(vllm.server.url))
    assert {result.failure for result in results} == {None}
    stretch = Stretch(start_ts=start_ts, end_ts=time.time_ns(), results=results)
    vllm.wait_for_the_end_of(sum(NUM_BY_RANK), stretch)
    return stretch


def test_ranks_are_told_apart(vllm: RecordedVllm, lopsided: Stretch) -> None:
    ranks = vllm.rows("SELECT dp_rank FROM engines ORDER BY dp_rank")
    assert [row["dp_rank"] for row in ranks] == [0, 1]


def test_our_scheduler_decides_the_same_on_each_rank(vllm: RecordedVllm, lopsided: Stretch) -> None:
    assert list(vllm.replay_differences().values()) == [[], []]


def test_a_query_shows_the_imbalance(vllm: RecordedVllm, lopsided: Stretch) -> None:
    busy, idle = vllm.rows(IMBALANCE)
    assert (busy["num_requests"], idle["num_requests"]) == NUM_BY_RANK
    assert busy["most_running"] == MAX_NUM_SEQS
    assert busy["most_waiting"] > 0
    assert idle["most_waiting"] == 0

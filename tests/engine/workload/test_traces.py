from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from engine.workload.plan import PlannedRequest, WorkloadError
from engine.workload.trace_file import read_trace

SHARED = Path(__file__).parents[3].parent / "shared" / "traces"
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:47.1805900,8,0
"""


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def mooncake(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def row(timestamp: int, input_length: int, hash_ids: list[int], **more: Any) -> dict[str, Any]:
    return {
        "timestamp": timestamp,
        "input_length": input_length,
        "output_length": 32,
        "hash_ids": hash_ids,
        **more,
    }


def tokens(request: PlannedRequest) -> list[int]:
    return request.token_ids(vocab_size=1000, seed=0)


@pytest.mark.parametrize("name", ["azure.csv", "azure.csv.gz"])
def test_an_azure_row_is_a_request(tmp_path: Path, name: str) -> None:
    first, second = read_trace(write(tmp_path / name, AZURE))
    assert second.offset_seconds - first.offset_seconds == pytest.approx(0.5)
    assert (first.num_prompt_tokens, first.max_tokens) == (374, 44)
    assert second.max_tokens == 1


def test_azure_prompts_share_nothing_and_are_repeatable(tmp_path: Path) -> None:
    path = write(tmp_path / "azure.csv", AZURE)
    first, second = read_trace(path)
    assert tokens(first)[:8] != tokens(second)
    assert tokens(first) == tokens(read_trace(path)[0])
    assert tokens(first) != first.token_ids(vocab_size=1000, seed=1)


def test_scaling_divides_azure_lengths(tmp_path: Path) -> None:
    first, second = read_trace(write(tmp_path / "azure.csv", AZURE), scale=16)
    assert (first.num_prompt_tokens, first.max_tokens) == (23, 2)
    assert (second.num_prompt_tokens, second.max_tokens) == (1, 1)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_equal_hash_ids_are_equal_tokens(tmp_path: Path, name: str) -> None:
    text = mooncake(row(0, 1100, [4, 5, 6]), row(250, 1200, [4, 5, 9]), row(300, 40, [7]))
    first, second, third = read_trace(write(tmp_path / name, text))
    assert second.offset_seconds == 0.25
    assert [r.num_prompt_tokens for r in (first, second, third)] == [1100, 1200, 40]
    assert tokens(first)[:1024] == tokens(second)[:1024]
    assert tokens(first)[1024:1100] != tokens(second)[1024:1100]
    assert tokens(third) != tokens(first)[:40]


def test_a_block_that_is_cut_is_a_prefix_of_the_whole_block(tmp_path: Path) -> None:
    text = mooncake(row(0, 700, [4, 5]), row(1, 1024, [4, 5]))
    cut, whole = read_trace(write(tmp_path / "trace.jsonl", text))
    assert tokens(cut) == tokens(whole)[:700]


@pytest.mark.parametrize("scale", [1, 3, 16, 512])
def test_scaling_keeps_who_shares_what_with_whom(tmp_path: Path, scale: int) -> None:
    text = mooncake(row(0, 5120, list(range(10))), row(1, 5120, [*range(6), 60, 61, 62, 63]))
    first, second = read_trace(write(tmp_path / "trace.jsonl", text), scale=scale)
    assert first.num_prompt_tokens == 5120 // scale
    num_shared = next(
        i for i, (a, b) in enumerate(zip(tokens(first), tokens(second), strict=True)) if a != b
    )
    assert num_shared == -(-6 * 512 // scale)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("a,b,c\n1,2,3\n", "line 1: the header is 'a,b,c'"),
        (AZURE + "yesterday,1,2\n", "line 4"),
        (AZURE + "2023-11-16 18:15:48,1\n", "line 4"),
        (AZURE + "2023-11-16 18:15:48,-1,2\n", "line 4: a length is negative"),
        (mooncake(row(0, 10, [1])) + "{broken\n", "line 2: not JSON"),
        (mooncake(row(0, 10, [1])) + "[1]\n", "line 2: expected a JSON object"),
        (mooncake(row(0, 600, [1])), "line 1: 1 hash ids stand for 512 tokens"),
        (mooncake(row(0, 10, ["x"])), "line 1: hash_ids"),  # type: ignore[list-item]
        (mooncake({"timestamp": 0}), "line 1: input_length is None"),
    ],
)
def test_a_bad_trace_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(WorkloadError, match="trace") as error:
        read_trace(write(tmp_path / "trace", text))
    assert says in str(error.value)


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"nowhere\.csv"):
        read_trace(tmp_path / "nowhere.csv")


def test_a_packed_trace_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(AZURE.encode())[:-12])
    with pytest.raises(WorkloadError, match=r"cut\.gz"):
        read_trace(path)


@pytest.mark.parametrize("scale", [0, 513])
def test_a_scale_that_leaves_no_block_is_refused(tmp_path: Path, scale: int) -> None:
    path = write(tmp_path / "trace.jsonl", mooncake(row(0, 10, [1])))
    with pytest.raises(WorkloadError, match="--scale"):
        read_trace(path, scale=scale)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public traces are not here")
@pytest.mark.parametrize(
    ("name", "num_requests"),
    [
        ("azure_2023_conv.csv.gz", 19366),
        ("azure_2023_code.csv.gz", 8819),
        ("mooncake_conversation.jsonl.gz", 12031),
        ("mooncake_synthetic.jsonl.gz", 3993),
    ],
)
def test_the_public_traces_are_read_whole(name: str, num_requests: int) -> None:
    assert len(read_trace(SHARED / name, scale=16)) == num_requests

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.device.limits import DeviceLimits
from benchmarks.device.models import random_llama
from benchmarks.device.serving import flops_per_token, kv_token_bytes


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Very small models are faster on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_check_runs_on_a_cpu_and_writes_its_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "section.md"
    arguments = ["--device", "cpu", "--tiny", "--batches", "1", "3", "--output", str(output)]
    assert gpu_check.main(arguments) == 0
    section = output.read_text()
    assert section in capsys.readouterr().out
    rows = [line for line in section.splitlines() if line.startswith("| tiny")]
    kinds = [tuple(row.split(" | ")[1:4]) for row in rows]
    assert kinds == [
        ("TORCH_SDPA", "no", "decode 1"),
        ("TORCH_SDPA", "no", "decode 3"),
        ("TORCH_SDPA", "no", "prefill 32"),
        ("TORCH_SDPA", "yes", "decode 1"),
        ("TORCH_SDPA", "yes", "decode 3"),
    ]
    assert "Not measured: FLASHINFER" in section
    assert "times as long" in section


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_the_slower_of_memory_and_arithmetic_limits_a_step() -> None:
    limits = DeviceLimits(bytes_per_second=10.0, flops_per_second=100.0)
    assert limits.seconds(num_bytes=20, num_flops=100) == 2.0
    assert limits.seconds(num_bytes=20, num_flops=1000) == 10.0


def test_what_a_token_takes_is_worked_out_from_the_model() -> None:
    model = random_llama("tiny", torch.device("cpu"), torch.float32)
    per_layer = 64 * (4 + 2 + 2 + 4) * 16 + 3 * 64 * 128 + 2 * 64
    weights = 2 * per_layer + 64 + 64 * 256  # the embeddings are looked up, not read
    assert flops_per_token(model, 0) == 2 * weights
    assert flops_per_token(model, 10) - flops_per_token(model, 0) == 2 * 2 * 4 * 2 * 16 * 10
    assert kv_token_bytes(model) == 2 * 2 * 2 * 16 * 4

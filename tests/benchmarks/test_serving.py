from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.scheduling import workloads
from benchmarks.scheduling.peer import PeerError, VllmPeer
from benchmarks.scheduling.serving import serve
from tests.benchmarks.builders import our_peer, our_side, small

LOAD = small(workloads.preemption_storm(8, True))


def answers_to(*commands: dict[str, object]) -> list[dict[str, object]]:
    answers = io.StringIO()
    serve(io.StringIO("\n".join(map(json.dumps, commands))), answers, "1.0", our_side)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_a_process_says_its_version_first() -> None:
    assert answers_to() == [{"version": "1.0"}]


def test_a_workload_comes_through_the_pipe_unchanged() -> None:
    here = our_peer()
    checksum, block = here.open(LOAD), here.measure()
    opened, measured = answers_to(
        {"do": "open", "workload": asdict(LOAD)}, {"do": "measure"}, {"do": "close"}
    )[1:3]
    assert opened == {"checksum": checksum}
    assert measured["block"]["num_tokens"] == block.num_tokens


def test_a_python_without_vllm_is_named() -> None:
    with pytest.raises(PeerError, match="whether vLLM can be imported"):
        VllmPeer(Path(sys.executable))


def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(PeerError, match="/nowhere/python, and no such program"):
        VllmPeer(Path("/nowhere/python"))

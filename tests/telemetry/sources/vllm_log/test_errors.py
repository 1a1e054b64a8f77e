"""What goes wrong in an engine is told by its kind, and stored without what a request brought."""

from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.sources.vllm_log.errors import KINDS, SIGNS, event_of
from tests.telemetry.sources.vllm_log.builders import LINE, Imported, import_text

HEAD = "(EngineCore pid=7) {level} 03-14 09:27:00 [{place}] "

TROUBLE = {
    "out_of_memory": (
        "ERROR",
        "core.py:1",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has",
        "CUDA out of memory. Tried to allocate 20.00 MiB",
    ),
    "kv_cache_too_small": (
        "ERROR",
        "core.py:1",
        "ValueError: No available memory for the cache blocks. Try increasing it",
        "No available memory for the cache blocks",
    ),
    "collective_timeout": (
        "ERROR",
        "ProcessGroupNCCL.cpp:616",
        "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=61, "
        "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=61, OpType=ALLREDUCE",
    ),
    "nccl_error": (
        "ERROR",
        "worker.py:1",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)",
        "NCCL error: unhandled system error",
    ),
    "step_timeout": (
        "ERROR",
        "core.py:1",
        "TimeoutError: RPC call to execute_model timed out.",
        "RPC call to execute_model timed out",
    ),
    "broadcast_stall": (
        "WARNING",
        "shm_broadcast.py:466",
        "No available shared memory broadcast block found in 60 seconds. This typically happens",
        "No available shared memory broadcast block found in 60 seconds",
    ),
    "cuda_error": (
        "ERROR",
        "core.py:1",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "CUDA error: an illegal memory access was encountered",
    ),
    "worker_died": (
        "ERROR",
        "multiproc_executor.py:315",
        "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.",
        "Worker proc VllmWorker-1 died unexpectedly (exit code: -9)",
    ),
    "engine_failed_to_start": (
        "ERROR",
        "core.py:1510",
        "EngineCore failed to start.",
        "EngineCore failed to start",
    ),
    "engine_dead": (
        "ERROR",
        "core.py:2663",
        "EngineCore encountered a fatal error.",
        "EngineCore encountered a fatal error",
    ),
    "kv_load_failed": (
        "ERROR",
        "scheduler.py:3417",
        "Failing 2 request(s) due to KV load failure (failure_policy=fail, 640 tokens affected). "
        "Request IDs: {'a', 'b'}",
        "Failing 2 request(s) due to KV load failure (failure_policy=fail, 640 tokens affected",
    ),
    "kv_lease_expired": (
        "WARNING",
        "base_worker.py:3032",
        "Releasing expired KV blocks for request cmpl-1-0 which were retrieved by 0 remote "
        "worker(s) before lease expired.",
        "Releasing expired KV blocks for request cmpl-1-0 which were retrieved by 0 remote "
        "worker(s)",
    ),
    "kv_transfer_failed": (
        "ERROR",
        "base_worker.py:1260",
        "NIXL transfer failure: transfer_failed | Context: {'request_id': 'x'}",
        "NIXL transfer failure: transfer_failed",
    ),
    "request_aborted": (
        "INFO",
        "async_llm.py:922",
        "Aborted request(s) cmpl-1-0,cmpl-2-0.",
        "Aborted request(s) cmpl-1-0,cmpl-2-0.",
    ),
    "cache_reset": (
        "WARNING",
        "block_pool.py:839",
        "Failed to reset prefix cache because some blocks (12) are not freed yet",
        "Failed to reset prefix cache because some blocks (12) are not freed yet",
    ),
    "sleep": (
        "INFO",
        "executor_base.py:210",
        "It took 1.25 seconds to fall asleep.",
        "It took 1.25 seconds to fall asleep",
    ),
    "connector_error": (
        "ERROR",
        "mooncake_connector.py:1179",
        "Mooncake is not available",
        "mooncake_connector.py:1179: Mooncake is not available",
    ),
    "error": (
        "ERROR",
        "core.py:1704",
        "Unrecognized input request type encountered: 7",
        "core.py:1704: Unrecognized input request type encountered",
    ),
}


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """A log with a line of each kind, from line 2 on."""
    lines = [
        HEAD.format(level=level, place=place) + message
        for level, place, message, _ in TROUBLE.values()
    ]
    return import_text(tmp_path_factory.mktemp("troubled"), LINE + "\n".join(lines))


@pytest.mark.parametrize("kind", TROUBLE)
def test_each_kind_is_told_by_its_words(troubled: Imported, kind: str) -> None:
    level, _, _, text = TROUBLE[kind]
    line = list(TROUBLE).index(kind) + 2
    (row,) = (row for row in troubled.table("log_lines") if row["line"] == line)
    found = (row["kind"], row["level"], row["process"], row["text"])
    assert found == (kind, level, "EngineCore", text)


def test_every_sign_has_a_test() -> None:
    elsewhere = {"preempted", "engine_ready", "shutdown", "engine_starting", "exception"}
    assert set(TROUBLE) | elsewhere == set(KINDS)
    assert len({sign.kind for sign in SIGNS}) == len(SIGNS)


@pytest.mark.parametrize("message", [message for _, _, message, _ in TROUBLE.values()])
def test_words_of_trouble_in_a_line_that_is_no_warning_are_none(message: str) -> None:
    event = event_of("INFO", "notes.py:1", message)
    assert event is None or not {s.kind: s.is_trouble for s in SIGNS}[event.kind]


def test_v0s_preemption_warning_brings_its_count(tmp_path: Path) -> None:
    warning = (
        "WARNING 03-14 09:27:00 scheduler.py:1754] Sequence group cmpl-9-0 is preempted by "
        "PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect "
        "the end-to-end performance. Increase gpu_memory_utilization or tensor_parallel_size to "
        "provide more KV cache memory. total_num_cumulative_preemption={}\n"
    )
    imported = import_text(tmp_path, LINE + warning.format(1) + warning.format(51))
    assert imported.kinds() == ["preempted", "preempted"]
    assert imported.values()["log:preemptions_total"] == 51
    (note,) = (note for note in imported.told()["notes"] if note.startswith("preemptions"))
    assert "every fiftieth" in note


def test_a_traceback_without_heads_gives_its_last_line(tmp_path: Path) -> None:
    imported = import_text(
        tmp_path,
        LINE
        + "Process EngineCore_0:\n"
        + "Traceback (most recent call last):\n"
        + '  File "core.py", line 512, in run_engine_core\n'
        + "    raise e\n"
        + "    ^^^^^^^\n"
        + "KeyError: 'secret words'\n"
        + "\n"
        + "During handling of the above exception, another exception occurred:\n"
        + "\n"
        + "Traceback (most recent call last):\n"
        + '  File "core.py", line 520, in run_engine_core\n'
        + "RuntimeError: Engine core initialization failed. See root cause above. {'a': 1}\n",
    )
    assert [(kind, text) for kind, _, text in imported.events()] == [
        ("exception", "KeyError"),
        ("engine_failed_to_start", "RuntimeError: Engine core initialization failed"),
    ]
    assert imported.told()["num_unread"] == 1  # the line that names the process


def test_a_dead_engine_after_a_shutdown_is_what_was_asked_for(tmp_path: Path) -> None:
    head = "(APIServer pid=7) {level} 03-14 09:27:00 [{place}] "
    dead = (
        head.format(level="ERROR", place="async_llm.py:906") + "AsyncLLM output_handler failed.\n"
    )
    down = (
        head.format(level="INFO", place="launcher.py:254")
        + "[shutdown] API server: shutdown triggered\n"
    )
    assert import_text(tmp_path, LINE + dead + down).kinds() == ["engine_dead", "shutdown"]
    other = tmp_path / "other"
    other.mkdir()
    assert import_text(other, LINE + down + dead).kinds() == ["shutdown", "shutdown"]


def test_the_watchdog_of_torch_writes_in_a_form_of_its_own(tmp_path: Path) -> None:
    line = (
        "[rank2]:[E314 09:27:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=61, OpType=ALLREDUCE, NumelIn=1)\n"
    )
    imported = import_text(tmp_path, LINE + line.replace("E314", "E0314"))
    assert imported.kinds() == ["collective_timeout"]
    (row,) = imported.table("log_lines")
    assert (row["process"], row["level"]) == ("rank2", "ERROR")
    assert row["ts"] % 10**9 == 123_456_789


def test_lmcache_writes_in_a_form_of_its_own(tmp_path: Path) -> None:
    line = (
        "(Worker_TP1 pid=9) [2026-03-14 09:27:00,250] LMCache ERROR: Failed to connect to the "
        "remote server: lm://10.0.0.9 (local_backend.py:71:lmcache.v1.storage_backend)\n"
    )
    imported = import_text(tmp_path, LINE + line + line.replace("ERROR", "INFO"))
    assert imported.events() == [
        (
            "connector_error",
            "Worker_TP1",
            "lmcache/local_backend.py:71: Failed to connect to the remote server",
        )
    ]
    assert imported.table("log_lines")[0]["ts"] % 10**9 == 250_000_000
    assert imported.told()["num_unread"] == 0

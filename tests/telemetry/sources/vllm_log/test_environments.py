"""Logs as different environments and versions keep them, each with the rows it must give."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from telemetry.sources.vllm_log.prefixes import Unwrapper
from tests.telemetry.sources.vllm_log.builders import LINE, STATS, Imported, import_text

MESSAGE = f"(APIServer pid=71) INFO 03-14 09:26:53 [loggers.py:335] {STATS}"
COLOURED = (
    "\x1b[0;36m(APIServer pid=71)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m03-14 09:26:53\x1b[0m "
    f"\x1b[90m[loggers.py:335]\x1b[0m {STATS}"
)
V0_STATS = (
    "Avg prompt throughput: 120.0 tokens/s, Avg generation throughput: 480.5 tokens/s, Running: "
    "12 reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV cache usage: 87.5%, CPU KV cache usage: 0.0%"
)

TRACEBACK = "Traceback (most recent call last):"
SECOND = "2026-03-14T09:26:53"
EXACT = "2026-03-14T09:26:53.250000"

EXCERPTS = {
    "plain": (f"{MESSAGE}\n", "APIServer", SECOND),
    "without a process, as before 0.10": (LINE, None, SECOND),
    "V0": (f"INFO 03-14 09:26:53 metrics.py:455] {V0_STATS}.\n", None, SECOND),
    "V0.3": (f"INFO 03-14 09:26:53 llm_engine.py:877] {V0_STATS}\n", None, SECOND),
    "colours": (f"{COLOURED}\n", "APIServer", SECOND),
    "colours without their escapes": (COLOURED.replace("\x1b", "") + "\n", "APIServer", SECOND),
    "Windows line ends": (f"{MESSAGE}\r\n", "APIServer", SECOND),
    "docker json-file": (
        json.dumps({"log": f"{COLOURED}\n", "stream": "stderr", "time": "2026-03-14T09:26:53.25Z"})
        + "\n",
        "APIServer",
        EXACT,
    ),
    "docker logs --timestamps": (f"2026-03-14T09:26:53.250000000Z {MESSAGE}\n", "APIServer", EXACT),
    "an export of Loki": (f"2026-03-14 09:26:53.250 | {MESSAGE}\n", "APIServer", EXACT),
    "Kubernetes CRI": (
        f"2026-03-14T10:26:53.25+01:00 stderr F {MESSAGE}\n",
        "APIServer",
        EXACT,
    ),
    "Kubernetes CRI in parts": (
        f"2026-03-14T09:26:53.1Z stderr P {MESSAGE[:90]}\n"
        "2026-03-14T09:26:53.2Z stdout F INFO:     Waiting for application startup.\n"
        f"2026-03-14T09:26:53.25Z stderr F {MESSAGE[90:]}\n",
        "APIServer",
        EXACT,
    ),
    "kubectl logs --prefix": (f"[pod/vllm-0/server] {MESSAGE}\n", "APIServer", SECOND),
    "docker compose": (f"vllm-1  | {MESSAGE}\n", "APIServer", SECOND),
    "journald short": (f"Mar 14 09:26:53 gpu-7 vllm[71]: {MESSAGE}\n", "APIServer", SECOND),
    "journald short-iso-precise": (
        f"2026-03-14T09:26:53.250000+00:00 gpu-7 vllm[71]: {MESSAGE}\n",
        "APIServer",
        EXACT,
    ),
    "journald json": (
        json.dumps(
            {
                "MESSAGE": list(COLOURED.encode()),
                "__REALTIME_TIMESTAMP": "1773480413250000",
                "_HOSTNAME": "gpu-7",
            }
        )
        + "\n",
        "APIServer",
        EXACT,
    ),
    "Ray": (
        "\x1b[36m(ServeReplica:llm:VLLMDeployment pid=9, ip=10.0.0.2)\x1b[0m "
        f"INFO 03-14 09:26:53 [loggers.py:161] {STATS}\n",
        "ServeReplica:llm:VLLMDeployment",
        SECOND,
    ),
    "Ray around vLLM's own process": (
        f"(EngineActor pid=9, ip=10.0.0.2) {MESSAGE}\n",
        "APIServer",
        SECOND,
    ),
    "behind a bar of progress": (
        f"Capturing CUDA graphs: 100%|###| 35/35 [00:20<00:00,  1.70it/s]{MESSAGE}\n",
        "APIServer",
        SECOND,
    ),
    "vLLM's JSON formatter": (
        json.dumps(
            {
                "asctime": "2026-03-14 09:26:53,250",
                "levelname": "INFO",
                "name": "vllm.v1.metrics.loggers",
                "processName": "APIServer",
                "process": 71,
                "message": STATS,
            }
        )
        + "\n",
        "APIServer",
        EXACT,
    ),
}


MINUTE_NS = 60 * 10**9


def ns_of(time: str) -> int:
    """Returns a time in UTC in ns since the epoch."""
    moment = datetime.fromisoformat(f"{time}+00:00")
    return round(moment.timestamp() * 1_000_000) * 1_000


def at_minute(text: str, minute: int) -> str:
    """Returns an excerpt of 09:26 as of another minute of that hour."""
    micros = str(1_773_480_413_250_000 + (minute - 26) * 60_000_000)
    moved = text.replace("09:26", f"09:{minute:02}").replace("10:26", f"10:{minute:02}")
    return moved.replace("1773480413250000", micros)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """All excerpts in one file, each in a minute of its own."""
    text = "".join(at_minute(text, i) for i, (text, _, _) in enumerate(EXCERPTS.values()))
    return import_text(tmp_path_factory.mktemp("mixed"), text)


@pytest.mark.parametrize("name", EXCERPTS)
def test_the_same_line_gives_the_same_rows(mixed: Imported, name: str) -> None:
    _, process, time = EXCERPTS[name]
    ts = ns_of(time) + (list(EXCERPTS).index(name) - 26) * MINUTE_NS
    rows = [row for row in mixed.table("samples") if row["ts"] // MINUTE_NS == ts // MINUTE_NS]
    assert {row["ts"] for row in rows} == {ts}
    (labels,) = {row["labels"] for row in rows}
    assert json.loads(labels) == {"engine": "0"} | ({"process": process} if process else {})
    values = {row["metric"]: row["value"] for row in rows}
    assert values["log:running"] == 12
    assert values.get("log:waiting", values.get("log:pending")) == 3
    assert values["log:kv_cache_usage"] == 0.875
    assert values["log:avg_generation_throughput"] == 480.5


def test_all_excerpts_are_understood_whole(mixed: Imported) -> None:
    told = mixed.told()
    assert told["num_unread"] == 0
    assert told["kinds"] == {"stats": len(EXCERPTS), "part": 1, "other": 1}


@pytest.mark.parametrize("name", ["journald short-iso-precise", "journald json", "journald short"])
def test_the_host_is_known_where_the_environment_names_it(name: str) -> None:
    unwrapped = Unwrapper().unwrap(EXCERPTS[name][0].rstrip())
    assert unwrapped is not None
    assert unwrapped.host == "gpu-7"


def interleaved(tmp_path: Path) -> Imported:
    """Imports the log of two ranks and their workers, all writing at once."""
    second = STATS.replace("Engine 000", "Engine 001").replace("Running: 12", "Running: 4")
    lines = [
        "(EngineCore_DP1 pid=80) INFO 03-14 09:26:40 [core.py:133] Initializing a V1 LLM engine "
        "(v0.32.0) with config: model='m', served_model_name=chat, max_seq_len=4096",
        "(EngineCore_DP0 pid=79) INFO 03-14 09:26:41 [kv_cache_utils.py:2327] GPU KV cache size: "
        "1,000 tokens, Maximum concurrency for 4,096 tokens per request: 0.24x",
        "(EngineCore_DP1 pid=80) INFO 03-14 09:26:41 [kv_cache_utils.py:2327] GPU KV cache size: "
        "2,000 tokens, Maximum concurrency for 4,096 tokens per request: 0.49x",
        MESSAGE,
        f"(APIServer pid=71) INFO 03-14 09:26:53 [loggers.py:335] {second}",
        "(EngineCore_DP0 pid=79) ERROR 03-14 09:26:54 [core.py:9] " + TRACEBACK,
        "(Worker_DP1_TP1 pid=90) ERROR 03-14 09:26:54 [gpu.py:3] " + TRACEBACK,
        '(EngineCore_DP0 pid=79) ERROR 03-14 09:26:54 [core.py:9]   File "core.py", line 9, in run',
        "(Worker_DP1_TP1 pid=90) ERROR 03-14 09:26:54 [gpu.py:3] torch.OutOfMemoryError: CUDA out "
        "of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.14 GiB",
        "(EngineCore_DP0 pid=79) ERROR 03-14 09:26:54 [core.py:9] ValueError: not to be kept",
    ]
    return import_text(tmp_path, "\n".join(lines))


def test_the_ranks_of_one_log_are_engines_of_their_own(tmp_path: Path) -> None:
    imported = interleaved(tmp_path)
    rows = imported.rows("SELECT dp_rank, num_kv_tokens, model FROM engines ORDER BY dp_rank")
    assert rows == [
        {"dp_rank": 0, "num_kv_tokens": 1000, "model": "chat"},
        {"dp_rank": 1, "num_kv_tokens": 2000, "model": "chat"},
    ]
    assert imported.values("0")["log:running"] == 12
    assert imported.values("1")["log:running"] == 4
    assert len(imported.rows("SELECT DISTINCT engine FROM samples")) == 2


def test_tracebacks_of_two_processes_at_once_are_told_apart(tmp_path: Path) -> None:
    imported = interleaved(tmp_path)
    assert imported.rows(
        "SELECT dp_rank, kind, process, text FROM log_lines JOIN engines USING (engine) "
        "WHERE level = 'ERROR' ORDER BY dp_rank"
    ) == [
        {"dp_rank": 0, "kind": "exception", "process": "EngineCore_DP0", "text": "ValueError"},
        {
            "dp_rank": 1,
            "kind": "out_of_memory",
            "process": "Worker_DP1_TP1",
            "text": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB",
        },
    ]


def test_what_names_no_rank_is_put_to_the_first_and_that_is_said(tmp_path: Path) -> None:
    lines = [
        f"(APIServer pid=1) INFO 03-14 09:26:53 [loggers.py:335] {STATS}",
        "(APIServer pid=1) INFO 03-14 09:26:53 [loggers.py:335] "
        + STATS.replace("Engine 000", "Engine 001"),
        "(APIServer pid=1) ERROR 03-14 09:26:54 [async_llm.py:9] AsyncLLM output_handler failed.",
    ]
    imported = import_text(tmp_path, "\n".join(lines))
    assert imported.rows("SELECT dp_rank, kind FROM log_lines JOIN engines USING (engine)") == [
        {"dp_rank": 0, "kind": "engine_dead"}
    ]
    assert any("name no rank" in note for note in imported.told()["notes"])

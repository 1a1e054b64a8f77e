"""Lines that tell of something going wrong, or of the engine's life, by what they say.

Each kind is one entry of `SIGNS`: the pattern finds it, and what the pattern spans is all that is
stored of the line. So patterns hold fixed words, numbers and names of processes, and nothing that a
request could have brought. An error that none of them knows is kept by its place in vLLM's source
and the first words of its message, an exception by its type.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST_TEXT = 300

_NUMBER = r"[\d.,]+"
_ID = r"[\w.:-]{1,120}"


class Sign(NamedTuple):
    """One thing that a line can tell of."""

    kind: str
    pattern: re.Pattern[str]
    is_trouble: bool = True
    """Whether it is looked for in warnings, errors and exceptions only."""


def _sign(kind: str, pattern: str, *, is_trouble: bool = True) -> Sign:
    return Sign(kind, re.compile(pattern), is_trouble)


SIGNS = (
    _sign(
        "out_of_memory",
        rf"(?:CUDA|HIP|XPU|NPU) out of memory\.?(?: Tried to allocate {_NUMBER} [KMGT]?i?B)?"
        r"|CUDA error: out of memory",
    ),
    _sign(
        "kv_cache_too_small",
        r"No available memory for the cache blocks"
        r"|larger than the (?:maximum number of tokens that can be stored in|available) KV cache"
        r"|To serve at least one request with the model's max seq len",
    ),
    _sign(
        "collective_timeout",
        r"Watchdog caught collective operation timeout"
        r"(?:: WorkNCCL\(SeqNum=\d+, OpType=\w+)?"
        r"|(?:NCCL|Some NCCL|HCCL|Gloo) operations have failed or timed out"
        r"|Timed out waiting \d+ms for \w+ operation to complete"
        r"|Heartbeat monitor timed out!?",
    ),
    _sign(
        "nccl_error",
        r"NCCL error(?:: | in: |:)?[\w .,/:+-]{0,120}\b|ncclUnhandledCudaError|ncclSystemError"
        r"|ncclInternalError|ncclRemoteError|ncclInvalidUsage|NCCL WARN",
    ),
    _sign("step_timeout", r"RPC call to \w+ timed out|execute_model timed out"),
    _sign(
        "broadcast_stall",
        r"No available (?:shared memory broadcast block|block) found in \d+ seconds?",
    ),
    _sign("cuda_error", r"(?:CUDA|HIP) error: [a-z][a-z -]{0,80}|device-side assert triggered"),
    _sign(
        "worker_died",
        rf"(?:Ray)?Worker ?[Pp]roc(?:ess)? (?:rank=)?{_ID} (?:pid \d+ )?died"
        r"(?: unexpectedly)?(?: \(exit code: -?\d+\)|, exit code: -?\d+)?",
    ),
    _sign(
        "engine_failed_to_start",
        r"EngineCore failed to start|Engine core initialization failed"
        r"|Engine process failed to start|WorkerProc failed to start",
    ),
    _sign(
        "engine_dead",
        r"EngineDeadError|AsyncEngineDeadError|MQEngineDeadError|EngineCore encountered (?:a fatal"
        r" error|an issue)|AsyncLLM output_handler failed|Engine loop has died"
        r"|Background loop (?:has errored already|is stopped)|Engine background task failed"
        rf"|Engine core proc {_ID} died(?: unexpectedly)?",
    ),
    _sign(
        "preempted",
        r"is preempted by PreemptionMode\.\w+ mode because there is not enough KV cache space",
    ),
    _sign(
        "kv_load_failed",
        r"Failing \d+ request\(s\) due to KV load failure"
        r"(?: \(failure_policy=\w+, \d+ tokens affected)?"
        r"|Recovered from KV load failure: \d+ request\(s\) rescheduled \(\d+ tokens affected\)",
    ),
    _sign(
        "kv_lease_expired",
        rf"Releasing expired KV blocks for request {_ID}"
        r"(?: which were retrieved by \d+ (?:remote|decode) worker\(s\))?"
        rf"|Request {_ID} expired before sending on P side"
        rf"|Request {_ID} timed out after {_NUMBER} seconds without being sent"
        rf"|Declining expired remote read for {_ID}"
        rf"|Potentially invalid KV blocks for unrecognized request {_ID}"
        rf"|registration for request {_ID} timed out after {_NUMBER}s",
    ),
    _sign(
        "kv_transfer_failed",
        r"NIXL transfer failure(?:: \w+)?|nixlBackendError|NIXL_ERR_\w+|NIXL transfer setup failed"
        rf"|RDMA (?:transfer failed|read TIMED OUT) for req(?:uest)? {_ID}"
        r"|pulling kv_caches for \S{1,120} failed|Error processing Mooncake xfer request"
        r"|Error in Mooncake sender thread|Timeout waiting for P side ready"
        r"|Failed to connect to bootstrap server"
        r"|Something went wrong when processing the (?:store|retrieve) request"
        r"|The number of retrieved tokens is less than the expected number of tokens"
        r"|MoRIIO (?:hybrid READ failed|reads did not complete)|batch_put failed: \d+/\d+ keys",
    ),
    _sign("request_aborted", rf"Aborted request(?:\(s\))? {_ID}(?:,{_ID})*", is_trouble=False),
    _sign("engine_ready", r"Application startup complete", is_trouble=False),
    _sign(
        "cache_reset",
        r"Successfully reset prefix cache"
        r"|Failed to reset prefix cache because some blocks \(\d+\) are not freed yet",
        is_trouble=False,
    ),
    _sign(
        "shutdown",
        r"\[shutdown\] API server: shutdown triggered|\[shutdown\] EngineCore: trigger received"
        r"(?: signal=\w+)?|Application shutdown complete|Gracefully stopping http server",
        is_trouble=False,
    ),
    _sign(
        "sleep",
        rf"It took {_NUMBER} seconds to (?:fall asleep|wake up)",
        is_trouble=False,
    ),
)
"""In the order in which they are looked for: what is more exact comes first."""

KINDS = (
    *(sign.kind for sign in SIGNS),
    "engine_starting",
    "connector_error",
    "exception",
    "error",
)
"""Every kind that a row of `log_lines` can have here; docs/sources.md explains them."""

_CONNECTOR = re.compile(
    r"nixl|mooncake|lmcache|moriio|p2p_nccl|hf3fs|offload|kv_transfer|connector"
)
_CONTENT = re.compile(
    r"serving|protocol|parser|chat|render|preprocess|processor|detokenizer|tokenizer|logger"
    r"|validation|http|streaming|scheduler_output|dump_input|api_server|speech|harmony"
)
"""Files of vLLM that handle what requests bring: of their errors only the place is kept."""
_TOTAL = re.compile(r"total_(?:num_)?cumulative_preemption(?:_cnt)?=(\d+)")
_FIRST_WORDS = re.compile(r"[^'\"`\[\](){}<>=:%\d\\]{0,120}")
_TYPE = re.compile(r"(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}")
_TROUBLE = frozenset(("WARNING", "ERROR", "CRITICAL", "FATAL"))
_SEVERE = frozenset(("ERROR", "CRITICAL", "FATAL"))


class Event(NamedTuple):
    """What a line tells of."""

    kind: str
    text: str


def event_of(level: str, place: str, message: str) -> Event | None:
    """Returns what a line of a level, from a place in vLLM, tells of; None if nothing."""
    known = known_event(message, is_trouble=level in _TROUBLE)
    if known is not None or level not in _SEVERE:
        return known
    kind = "connector_error" if _CONNECTOR.search(place) else "error"
    words = "" if _CONTENT.search(place) else first_words(message)
    return Event(kind, f"{place}: {words}".rstrip(": ")[:LONGEST_TEXT])


def exception_event(kind_name: str, message: str) -> Event:
    """Returns what the last line of a traceback tells of, by its type and message."""
    known = known_event(f"{kind_name}: {message}", is_trouble=True)
    name = kind_name.rpartition(".")[2]
    if known is None:
        return Event("exception", name)
    text = known.text if name in known.text else f"{name}: {known.text}"
    return Event(known.kind, text[:LONGEST_TEXT])


def known_event(message: str, *, is_trouble: bool) -> Event | None:
    """Returns the first of `SIGNS` that a message shows."""
    for sign in SIGNS:
        if (is_trouble or not sign.is_trouble) and (match := sign.pattern.search(message)):
            return Event(sign.kind, match[0][:LONGEST_TEXT])
    return None


def num_preemptions_told(message: str) -> int | None:
    """Returns V0's count of preemptions so far, which stands in every fiftieth warning."""
    match = _TOTAL.search(message)
    return None if match is None else int(match[1])


def first_words(message: str) -> str:
    """Returns a message up to the first thing in it that could have been filled in."""
    match = _FIRST_WORDS.match(message)
    return "" if match is None else match[0].strip(" ,.-")


def is_exception_type(text: str) -> bool:
    """Returns whether a text can be the type of an exception, as a traceback ends with one."""
    match = _TYPE.fullmatch(text)
    return match is not None and text.rpartition(".")[2].endswith(
        ("Error", "Exception", "Exit", "Interrupt", "Timeout", "Warning", "Failure", "Refused")
    )

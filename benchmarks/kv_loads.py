"""What a KV load costs against computing the same tokens: does a connector pay on this machine?

Prompts of several lengths, each asked for one token by engines with and without a connector, turn
by turn, the local prefix cache empty each time. Medians over the rounds: CPU time of the process a
prompt token, and from the request's arrival to its token the CPU time and the time on the clock,
against computing it in the same round.

    python -m benchmarks.kv_loads --rounds 9
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from engine.connectors.settings import KVTransferConfig
from engine.llm import LLM
from engine.sampling import SamplingParams
from engine.settings import EngineSettings

LENGTHS = (64, 256, 1024, 3072)
ONE_TOKEN = SamplingParams(max_tokens=1, ignore_eos=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", type=Path, help="checkpoint (the tiny Llama)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        engines = {name: _engine(options.model, c) for name, c in _connectors(directory).items()}
        print("| prompt | " + " | ".join(engines) + " |")
        print("|---|" + "---|" * len(engines))
        for length in LENGTHS:
            print(_row(length, _times(engines, length, options.rounds)))
        for llm in engines.values():
            llm.close()


def _connectors(directory: str) -> dict[str, KVTransferConfig | None]:
    """Returns what is compared, by name; the first computes."""
    found: dict[str, KVTransferConfig | None] = {"computed": None}
    for name, where in (("host", {}), ("directory", {"shared_storage_path": directory})):
        for load_async in (True, False):
            how = "beside the steps" if load_async else "in the step"
            found[f"{name}, {how}"] = KVTransferConfig(
                kv_connector="SharedDirectoryConnector" if where else "HostMemoryConnector",
                kv_role="kv_both",
                kv_connector_extra_config={"load_async": load_async, **where},
            )
    return found


def _engine(model: Path | None, transfer: KVTransferConfig | None) -> LLM:
    return LLM(
        EngineSettings(
            model=model,
            num_gpu_blocks_override=400,
            max_num_batched_tokens=4096,
            kv_transfer_config=transfer,
        )
    )


def _times(
    engines: dict[str, LLM], length: int, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Returns CPU and clock seconds to the token of each engine, round by round.

    The first round only stores.
    """
    rng = random.Random(length)
    prompt = [rng.randrange(3, 200) for _ in range(length)]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    for turn in range(rounds + 1):
        for name, llm in engines.items():
            cpu, clock = time.process_time(), time.perf_counter()
            llm.generate([prompt], ONE_TOKEN)
            if turn:
                times[name].append((time.process_time() - cpu, time.perf_counter() - clock))
            _forget(llm)
    return times


def _forget(llm: LLM) -> None:
    """Lets the blocks be stored, and empties the local prefix cache."""
    core: Any = llm.core
    while core.has_work():
        core.step()
        core.wait_for_transfers()
    core.scheduler.reset_prefix_cache()


def _row(length: int, times: dict[str, list[tuple[float, float]]]) -> str:
    computed, cells = times["computed"], []
    for name, own in times.items():
        cell = f"{1e6 * median(cpu for cpu, _ in own) / length:.1f} µs"
        if name != "computed":
            pairs = list(zip(own, computed, strict=True))
            cpu = median(mine[0] / base[0] for mine, base in pairs)
            clock = median(mine[1] / base[1] for mine, base in pairs)
            cell += f", {cpu:.2f} x, {clock:.2f} x"
        cells.append(cell)
    return f"| {length:,} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()

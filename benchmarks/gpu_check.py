"""What the engine reaches of a CUDA device: decodes and prefills, kernels, graphs, recording.

    python -m benchmarks.gpu_check                          # all of it, as a section for RESULTS.md
    python -m benchmarks.gpu_check --models 1B --batches 1 64
    python -m benchmarks.gpu_check --device cpu --tiny      # the same code, to try it

Without a CUDA device it says so and ends with exit code 2.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.device import sections
from benchmarks.device.limits import DeviceLimits, measure_limits
from benchmarks.device.models import SIZES, random_llama
from benchmarks.device.sections import Row
from benchmarks.device.serving import TINY, Engine, Lengths, needs_of
from benchmarks.engine_throughput import SwitchedRecorder
from engine.compilation import ATTENTION_BACKENDS, AttentionBackendName
from engine.runner.graphs import GraphCaptureError
from engine.runner.kernels.choice import why_not
from engine.runner.model import LoadedModel
from telemetry.records import RunClock
from telemetry.ring import RingRecorder

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class _Reclaimed:
    """Frees the device's memory behind one measurement and before the next."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(
            "no CUDA device here, or a torch built for the CPU: nothing was measured "
            "(--device cpu --tiny tries the code)",
            file=sys.stderr,
        )
        return 2
    lines = sections.header(device, _command(args))
    dtype = torch.float32 if args.tiny else torch.bfloat16
    limits = measure_limits(device, dtype, is_tiny=args.tiny)
    lines += sections.limits_lines(limits)
    for size in ["tiny"] if args.tiny else args.models:
        lines += _measure_model(size, device, dtype, limits, args)
    text = "\n".join(lines)
    print(text)
    if args.output is not None:
        args.output.write_text(text)
    return 0


def _measure_model(
    size: str,
    device: torch.device,
    dtype: torch.dtype,
    limits: DeviceLimits,
    args: argparse.Namespace,
) -> list[str]:
    """Returns the lines of one model."""
    model = random_llama(size, device, dtype)
    lengths = TINY if args.tiny else Lengths()
    reasons = {name: why_not(name, needs_of(model, name)) for name in ATTENTION_BACKENDS}
    kernels = [name for name, reason in reasons.items() if reason is None]
    rows = [
        row
        for kernel in kernels
        for with_graphs in (False, True)
        for row in _measure_kernel(model, size, kernel, with_graphs, limits, lengths, args.batches)
    ]
    ratios = _measure_recording(model, kernels[0], lengths, max(args.batches))
    return [
        *sections.table(rows),
        *sections.recording_lines(max(args.batches), ratios),
        *sections.passed_over_lines({n: why for n, why in reasons.items() if why is not None}),
    ]


def _measure_kernel(
    model: LoadedModel,
    size: str,
    kernel: AttentionBackendName,
    with_graphs: bool,
    limits: DeviceLimits,
    lengths: Lengths,
    batches: Sequence[int],
) -> Iterator[Row]:
    """Yields a row for each batch of decodes, and one for a prefill without graphs."""

    def row(work: str, measured: object = None, reason: str = "") -> Row:
        return Row(
            model=size,
            kernel=kernel,
            graphs=with_graphs,
            work=work,
            measured=measured,  # type: ignore[arg-type]
            reason=reason,
        )

    with _Reclaimed():
        for batch in batches:
            work = f"decode {batch}"
            _progress(f"{size} {kernel} {'graphs' if with_graphs else 'eager'} {work}")
            try:
                engine = Engine(
                    model, kernel, with_graphs=with_graphs, max_num_seqs=batch, lengths=lengths
                )
                yield row(work, engine.decode(batch, limits))
                if batch == batches[-1] and not with_graphs:
                    yield row(f"prefill {lengths.prefill}", engine.prefill(limits))
            except torch.OutOfMemoryError:
                yield row(work, reason="does not fit")
            except GraphCaptureError as error:
                yield row(work, reason=f"cannot be captured: {error}")


def _measure_recording(
    model: LoadedModel, kernel: AttentionBackendName, lengths: Lengths, batch: int
) -> list[float]:
    _progress(f"recording on and off, {batch} requests")
    with tempfile.TemporaryDirectory() as directory:
        recorder = SwitchedRecorder(RingRecorder(Path(directory), RunClock.start()))
        engine = Engine(
            model,
            kernel,
            with_graphs=False,
            max_num_seqs=batch,
            lengths=lengths,
            recorder=recorder,
        )
        ratios = engine.pairs(batch, recorder)
        recorder.close()
    return ratios


def _progress(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _command(args: argparse.Namespace) -> str:
    if args.tiny:
        return f"python -m benchmarks.gpu_check --device {args.device} --tiny"
    return "make gpu-check"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__)
    add = parser.add_argument
    add("--device", default="cuda", help="cuda, or cpu to try the code (%(default)s)")
    add("--tiny", action="store_true", help="a tiny model and few steps: figures mean nothing")
    add("--models", nargs="+", default=["1B", "8B"], choices=sorted(SIZES), help="(1B 8B)")
    add("--batches", nargs="+", type=int, default=list(BATCHES), help="decoding requests")
    add("--output", type=Path, metavar="FILE", help="write the section there too")
    return parser


if __name__ == "__main__":
    sys.exit(main())

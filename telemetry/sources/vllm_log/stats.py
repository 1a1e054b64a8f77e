"""The lines that vLLM writes every ten seconds, of any version, as samples.

A line is a list of `Name: number unit`. The names that the step log knows have fixed metrics; a
name of a later version is kept under a name made of it. A number that is not one (`nan%`) is not
measured. The metric says what is counted, the number is in its unit: a percentage is a ratio here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_ENGINE = re.compile(r"Engine (\d{1,4}): ")
_AGGREGATED = re.compile(r"(\d{1,5}) Engines Aggregated: ")
_ITEM = re.compile(
    r"(?P<name>[A-Z][A-Za-z /-]{0,60}): (?P<value>-?\d+(?:\.\d+)?|nan|inf)(?P<percent>%)?"
)
_PAIR = re.compile(r"(?P<name>[A-Z][\w ()/-]{0,60})=(?P<value>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_POSITIONS = re.compile(r"Per-position acceptance rate: ((?:[\d.]+|nan)(?:, (?:[\d.]+|nan))*)")
_FETCH = re.compile(r"KV fetch: (\d+) waiting to start, (\d+) in progress, (\d+) completed waiting")
_MFU = re.compile(r"MFU: ([\d.]+) TF/s/\w+ ([\d.]+) GB/s/\w+")
_V0_HITS = re.compile(r"Prefix cache hit rate: GPU: ([\d.]+)%, CPU: ([\d.]+)%")

_FIRST = "Avg prompt throughput: "
_FOLLOWING = {
    "SpecDecoding metrics: ": "spec_",
    "Speculative metrics: ": "spec_",
    "DiffusionDecoding metrics: ": "diffusion_",
}
_TRANSFERS = {"KV Transfer metrics: ": "kv_transfer_", "EC Transfer metrics: ": "ec_transfer_"}
_NAMES = {
    "mean_acceptance_length": "mean_acceptance_length",
    "avg_draft_acceptance_rate": "draft_acceptance_rate",
    "number_of_accepted_tokens": "accepted_tokens",
    "accepted": "accepted_tokens",
    "number_of_draft_tokens": "drafted_tokens",
    "number_of_draft_tokens_tokens": "drafted_tokens",
    "drafted": "drafted_tokens",
}
"""Names of the lines about speculation, which changed between versions."""


class Sample(NamedTuple):
    """One number of a line."""

    metric: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


class StatsLine(NamedTuple):
    """What one line says. `engine` is a data-parallel rank as it is written."""

    engine: str | None
    """None: the line does not say; "all": it is about all of them."""
    samples: tuple[Sample, ...]
    is_following: bool = False
    """Whether it belongs to the line of numbers before it, and was written together with it."""
    is_iteration: bool = False


def parse(message: str) -> StatsLine | None:
    """Returns the samples of a stats line; None where the message is none, or has no number."""
    engine, text = _without_engine(message)
    samples = tuple(_samples(text))
    is_following = not text.startswith(_FIRST)
    return StatsLine(engine, samples, is_following) if samples else None


def looks_like(message: str) -> bool:
    """Returns whether a message is meant as a stats line, so that one not understood is noticed."""
    _, text = _without_engine(message)
    return _FIRST in text or text.startswith((*_FOLLOWING, *_TRANSFERS, "MFU: "))


def _without_engine(message: str) -> tuple[str | None, str]:
    if match := _ENGINE.match(message):
        return str(int(match[1])), message[match.end() :]
    if match := _AGGREGATED.match(message):
        return "all", message[match.end() :]
    return None, message


def _samples(text: str) -> Iterator[Sample]:
    if text.startswith(_FIRST):
        yield from _main(text)
    elif match := _V0_HITS.match(text):
        yield Sample("log:prefix_cache_hit_rate", float(match[1]) / 100)
        yield Sample("log:cpu_prefix_cache_hit_rate", float(match[2]) / 100)
    elif match := _MFU.match(text):
        yield Sample("log:mfu_tflops_per_device", float(match[1]))
        yield Sample("log:mfu_gbytes_per_device", float(match[2]))
    else:
        yield from _following(text)
        yield from _transfers(text)


def _main(text: str) -> Iterator[Sample]:
    """Yields the numbers of the line itself. Its first KV cache is the engine's; V0 had another."""
    has_kv = False
    for name, value in _items(text):
        if name == "kv_fetch":  # three numbers, told below
            continue
        if name.endswith("kv_cache_usage"):
            name, has_kv = ("cpu_kv_cache_usage" if has_kv else "kv_cache_usage"), True
        yield Sample(f"log:{name}", value)
    if match := _FETCH.search(text):
        for number, stage in enumerate(("waiting_to_start", "in_progress", "completed_waiting"), 1):
            yield Sample(f"log:kv_fetch_{stage}", float(match[number]))


def _following(text: str) -> Iterator[Sample]:
    for start, prefix in _FOLLOWING.items():
        if not text.startswith(start):
            continue
        text = text.removeprefix(start)
        for name, value in _items(text):
            if name != "per_position_acceptance_rate":
                yield Sample(f"log:{prefix}{_NAMES.get(name, name)}", value)
        if match := _POSITIONS.search(text):
            for position, rate in enumerate(match[1].split(", ")):
                if rate != "nan":
                    label = (("position", str(position)),)
                    yield Sample("log:spec_position_acceptance_rate", float(rate), label)


def _transfers(text: str) -> Iterator[Sample]:
    for start, prefix in _TRANSFERS.items():
        if text.startswith(start):
            for match in _PAIR.finditer(text, len(start)):
                yield Sample(f"log:{prefix}{_metric_name(match['name'])}", float(match["value"]))


def _items(text: str) -> Iterator[tuple[str, float]]:
    for match in _ITEM.finditer(text):
        value = float(match["value"])
        if math.isfinite(value):
            name = _metric_name(match["name"])
            yield name, value / 100 if match["percent"] else value


def _metric_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")

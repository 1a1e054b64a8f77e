"""What a collector exports: read from flags and from the environment.

A flag that is wrong stops `collect` before it starts. A variable that is wrong must not cost the
record: it is left aside, told once and shown by `doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from telemetry.errors import StepscopeError

if TYPE_CHECKING:
    from telemetry.exporters.otlp import Destination

LOOPBACK = "127.0.0.1"
PORT = "STEPSCOPE_METRICS_PORT"
HOST = "STEPSCOPE_METRICS_HOST"
STEPS = "STEPSCOPE_OTEL_STEPS"

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """What is exported, and where to. The defaults export nothing.

    `metrics_port` 0 takes a free port; None serves no page. `step_ratio` is the part of the steps
    that become spans. `problems` are variables that could not be followed.
    """

    metrics_host: str = LOOPBACK
    metrics_port: int | None = None
    traces: Destination | None = None
    metrics: Destination | None = None
    step_ratio: float = 0.0
    problems: tuple[str, ...] = ()

    @property
    def wants_anything(self) -> bool:
        """Whether there is anything to do, or to tell."""
        asked = (self.metrics_port, self.traces, self.metrics)
        return any(value is not None for value in asked) or bool(self.problems)


def read_settings(
    environ: Mapping[str, str],
    *,
    metrics_port: int | None = None,
    metrics_host: str | None = None,
    step_ratio: float | None = None,
) -> ExportSettings:
    """Returns the settings; a flag counts for more than its variable.

    Raises:
        StepscopeError: A flag is out of its range.
    """
    problems: list[str] = []

    def read(what: Callable[[], _Found], otherwise: _Found) -> _Found:
        try:
            return what()
        except StepscopeError as error:
            problems.append(str(error))
            return otherwise

    if metrics_port is None:
        metrics_port = read(lambda: _port_of(environ.get(PORT, "").strip()), None)
    else:
        _check_port("--metrics-port", metrics_port)
    if step_ratio is None:
        step_ratio = read(lambda: _ratio_of(environ.get(STEPS, "").strip()), 0.0)
    else:
        _check_ratio("--otel-steps", step_ratio)
    traces, metrics = None, None
    if any(name.startswith("OTEL_") for name in environ):
        from telemetry.exporters import otlp

        traces = read(lambda: otlp.find_destination("traces", environ), None)
        metrics = read(lambda: otlp.find_destination("metrics", environ), None)
    return ExportSettings(
        metrics_host=metrics_host or environ.get(HOST, "").strip() or LOOPBACK,
        metrics_port=metrics_port,
        traces=traces,
        metrics=metrics,
        step_ratio=step_ratio,
        problems=tuple(problems),
    )


def _port_of(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise StepscopeError(f"{PORT} is {text!r}: write a port, or 0 for any free one")
    _check_port(PORT, int(text))
    return int(text)


def _check_port(name: str, port: int) -> None:
    if not 0 <= port <= 65_535:
        raise StepscopeError(f"{name} is {port}: write a port up to 65535, or 0 for any free one")


def _ratio_of(text: str) -> float:
    if not text:
        return 0.0
    try:
        ratio = float(text)
    except ValueError:
        raise StepscopeError(f"{STEPS} is {text!r}: write a part of the steps, 0 to 1") from None
    _check_ratio(STEPS, ratio)
    return ratio


def _check_ratio(name: str, ratio: float) -> None:
    if not 0 <= ratio <= 1:  # NaN too
        raise StepscopeError(f"{name} is {ratio:g}: write a part of the steps, 0 to 1")

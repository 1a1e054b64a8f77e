"""Asks a Prometheus server, or what answers like one, for the samples of engines in a window.

Asked for is what was scraped, by range selectors (`{...}[300s]`), which give the samples themselves
with their times: nothing is filled in. A window is asked for in slices that stay far below what
servers allow, and a slice that is refused as too large is halved. With a step, each length gives
its last sample (`last_over_time`), and a length without one gives none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlencode

from telemetry.errors import ImportRefused
from telemetry.sources.prometheus.fetch import Access, Client, FetchError, TooLargeError
from telemetry.sources.prometheus.series import ENGINE_PREFIXES, SERVER_METRICS

TIMEOUT_SECONDS = 120.0
MOST_BYTES = 256 << 20
SAMPLES_A_SLICE = 300_000
"""About 8 MB of JSON; servers allow 50 million samples a query."""
USUAL_SCRAPE_MS = 5_000
LONGEST_SLICE_MS = 6 * 3_600_000
SHORTEST_SLICE_MS = 1_000
MOST_STEPS = 11_000
"""Points of a series that a range query may give."""
INSTANCES_A_QUERY = 100

_TOO_MUCH = re.compile(rb"too many|too large|exceed|limit|out of memory", re.IGNORECASE)

Labels: TypeAlias = dict[str, str]
Points: TypeAlias = list[tuple[int, float]]
"""Times in ms since the Unix epoch, and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time, ms since the Unix epoch: after its start, up to its end."""

    start_ms: int
    end_ms: int
    step_ms: int | None = None


class PrometheusServer:
    """One server, asked for the series of engines."""

    def __init__(self, url: SplitResult, access: Access, match: Sequence[tuple[str, str]]) -> None:
        """Prepares; nothing is asked yet. `match` are labels that all series must have.

        Raises:
            StepscopeError: The certificates of `access` cannot be read.
        """
        self.address = f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"
        self._base = url.path.rstrip("/")
        self._match = match
        self._client = Client(url, access, timeout_seconds=TIMEOUT_SECONDS, most_bytes=MOST_BYTES)

    # ----------------------------------------------------------------------------- selectors

    @property
    def engine_selector(self) -> str:
        """Selects all that engines say of themselves."""
        prefixes = "|".join(_quoted_regex(prefix) for prefix in ENGINE_PREFIXES)
        return self._selector(f'__name__=~"(?:{prefixes}).*"', '__name__!~".*_created"')

    def server_selectors(self, instances: Sequence[str]) -> list[str]:
        """Selects what the processes of these instances say, and whether they answered."""
        names = "|".join(SERVER_METRICS)
        return [
            self._selector(
                f'__name__=~"{names}"',
                'instance=~"{}"'.format(
                    "|".join(map(_quoted_regex, instances[at : at + INSTANCES_A_QUERY]))
                ),
            )
            for at in range(0, len(instances), INSTANCES_A_QUERY)
        ]

    def _selector(self, *matchers: str) -> str:
        labels = [f'{name}="{_quoted(value)}"' for name, value in self._match]
        return "{" + ",".join([*matchers, *labels]) + "}"

    # ------------------------------------------------------------------------------ questions

    def series(self, selector: str, window: Window) -> list[Labels]:
        """Returns the labels of the series that have samples in a window, the name among them.

        Raises:
            ImportRefused: The server does not answer, or not like a Prometheus.
        """
        asked = {
            "match[]": selector,
            "start": _seconds(window.start_ms),
            "end": _seconds(window.end_ms),
        }
        try:
            return [_labels(labels) for labels in self._ask("series", asked)]
        except (KeyError, TypeError, AttributeError):
            raise self._no_prometheus() from None

    def samples(
        self, selector: str, window: Window, num_series: int
    ) -> Iterator[tuple[int, list[tuple[Labels, Points]]]]:
        """Yields slices of a window: its end in ms, and the samples in it by series.

        Raises:
            ImportRefused: The server does not answer, or refuses even the smallest slice.
        """
        length = _first_length(window, num_series)
        at = window.start_ms
        while at < window.end_ms:
            end = min(at + length, window.end_ms)
            try:
                found = list(self._slice(selector, at, end, window.step_ms))
            except _SliceTooLargeError as error:
                shorter = _shorter(length, window.step_ms)
                if shorter is None:
                    raise ImportRefused(
                        f"{self.address} refuses even {length / 1000:g} s at once ({error}): "
                        "select fewer series with --match"
                    ) from None
                length = shorter
                continue
            yield end, found
            at = end

    def _slice(
        self, selector: str, start_ms: int, end_ms: int, step_ms: int | None
    ) -> Iterator[tuple[Labels, Points]]:
        if step_ms is None:
            query = f"{selector}[{end_ms - start_ms}ms]"
            asked = {"query": query, "time": _seconds(end_ms)}
            found = self._ask_slice("query", asked)
        else:
            asked = {
                "query": f"last_over_time({selector}[{step_ms}ms])",
                "start": _seconds(start_ms + step_ms),
                "end": _seconds(end_ms),
                "step": _seconds(step_ms),
            }
            found = self._ask_slice("query_range", asked)
        try:
            for each in found["result"]:
                points = [
                    (ms, float(value))
                    for at, value in each.get("values", ())
                    if start_ms < (ms := round(at * 1000)) <= end_ms
                ]
                yield _labels(each["metric"]), points
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise self._no_prometheus() from None

    def _ask_slice(self, path: str, asked: dict[str, str]) -> dict[str, Any]:
        try:
            found = self._ask(path, asked)
        except TooLargeError as error:
            raise _SliceTooLargeError(str(error)) from None
        if not isinstance(found, dict) or found.get("resultType") != "matrix":
            raise self._no_prometheus()
        return found

    def _ask(self, path: str, asked: dict[str, str]) -> Any:
        """Returns the data of an answer.

        Raises:
            ImportRefused: There is none.
            TooLargeError: It would be too large.
            _SliceTooLargeError: The server says so itself.
        """
        try:
            body = self._client.get(
                f"{self._base}/api/v1/{path}?{urlencode(asked)}", accept="application/json"
            )
            answer = json.loads(body)
            if answer["status"] == "success":
                return answer["data"]
            told = str(answer.get("error", answer["status"]))
        except TooLargeError:
            raise
        except FetchError as error:
            told = self._refusal(error)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._no_prometheus() from None
        raise ImportRefused(f"{self.address} cannot be read: {told}")

    def _no_prometheus(self) -> ImportRefused:
        return ImportRefused(
            f"{self.address} does not answer like a Prometheus: name its own address, like "
            "http://127.0.0.1:9090"
        )

    def _refusal(self, error: FetchError) -> str:
        """Returns what a server says against a question.

        Raises:
            _SliceTooLargeError: It is asked for too much.
        """
        try:
            told = str(json.loads(error.body)["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            told = str(error)
        if error.status in (413, 422, 503) and _TOO_MUCH.search(error.body):
            raise _SliceTooLargeError(told)
        return told


class _SliceTooLargeError(ImportRefused):
    """A slice is more than the server gives at once."""


def _labels(found: Any) -> Labels:
    """Returns the labels of a series.

    Raises:
        KeyError, AttributeError: They are none.
    """
    labels = {str(name): str(value) for name, value in found.items()}
    if "__name__" not in labels:
        raise KeyError("__name__")
    return labels


def _first_length(window: Window, num_series: int) -> int:
    """Returns how long the first slice is, in ms."""
    every = window.step_ms or USUAL_SCRAPE_MS
    length = max(1, SAMPLES_A_SLICE // max(1, num_series)) * every
    if window.step_ms is not None:
        return min(length, (MOST_STEPS - 1) * window.step_ms)
    return min(length, LONGEST_SLICE_MS, max(SHORTEST_SLICE_MS, window.end_ms - window.start_ms))


def _shorter(length: int, step_ms: int | None) -> int | None:
    """Returns half a slice, in whole steps; None where that is too short to ask for."""
    half = length // 2
    if step_ms is not None:
        half -= half % step_ms
    return half if half >= (step_ms or SHORTEST_SLICE_MS) else None


def _seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}"


def _quoted(text: str) -> str:
    """Returns a text as it stands between quotes in PromQL."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _quoted_regex(text: str) -> str:
    """Returns a text that matches itself alone, as a regular expression between quotes."""
    return _quoted(re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text))

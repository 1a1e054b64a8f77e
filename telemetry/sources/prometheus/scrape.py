"""Scrapes one address while a collector runs, at a steady interval, in a thread of its own.

A scrape that failed is no sample: nothing is carried on from the one before. What Prometheus calls
`up` is stored instead, 1 or 0 for each engine behind the address, so a gap can be seen and told
from an engine that says nothing. Counters are stored as they are, also where they begin anew.
"""

from __future__ import annotations

import logging
import threading
import time
from urllib.parse import SplitResult

from telemetry.errors import StepscopeError
from telemetry.rendering import printable
from telemetry.sources.prometheus.engines import SOURCE, Engines
from telemetry.sources.prometheus.fetch import Access, Client, FetchError
from telemetry.sources.prometheus.notes import names_text
from telemetry.sources.prometheus.page import PageReader, whole_lines
from telemetry.sources.prometheus.series import Series
from telemetry.sources.prometheus.storing import sample_rows
from telemetry.sources.rows import Row, SourceRows

DEFAULT_INTERVAL_SECONDS = 5.0
"""A storm of preemptions can be over in seven seconds: the 15 or 60 s of most Prometheus servers
see it as one step of a counter, or not at all. A page costs a vLLM's API server 17 ms, 0.3 % of a
core at this interval."""
SHORTEST_INTERVAL_SECONDS = 0.2
DEFAULT_TIMEOUT_SECONDS = 5.0
"""For a whole page. A busy API server takes its time: half a second is no hang."""
MOST_PAGE_BYTES = 32 << 20
PATH = "/metrics"
ACCEPT = "text/plain;version=0.0.4,*/*;q=0.1"

_log = logging.getLogger("stepscope.collector")


class Scrape:
    """A live source: one address.

    Invariants:
        Only the thread touches the engines and the reader; `status` reads plain counts.
    """

    def __init__(
        self,
        url: SplitResult,
        access: Access,
        *,
        interval_seconds: float,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        offset_seconds: float = 0.0,
    ) -> None:
        """Prepares; nothing is asked yet.

        Args:
            url: the address; without a path it is `/metrics` there.
            access: what the server wants to see, and how it is trusted.
            interval_seconds: from one scrape to the next. What takes longer takes their turns.
            timeout_seconds: after which a scrape has failed.
            offset_seconds: when the first one is due.

        Raises:
            StepscopeError: The certificates of `access` cannot be read.
        """
        path = url.path if url.path not in ("", "/") else PATH
        self._path = path + (f"?{url.query}" if url.query else "")
        self.target = target_of(url, path)
        self._interval = interval_seconds
        self._offset = offset_seconds
        self._timeout = timeout_seconds
        self._client = Client(
            url, access, timeout_seconds=timeout_seconds, most_bytes=MOST_PAGE_BYTES
        )
        self._engines = Engines(self.target)
        self._reader = PageReader()
        self._num_described = -1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"scrape {self.target}", daemon=True)
        self._rows = SourceRows()
        self.num_pages = 0
        self.num_failed = 0
        self._failure: str | None = None
        self._last_page: float | None = None

    def start(self, rows: SourceRows) -> None:
        """Begins to scrape into `rows`."""
        self._rows = rows
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, and the request that it waits for."""
        self._stop.set()
        self._client.close()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * self._timeout)

    @property
    def is_well(self) -> bool:
        """Whether the last page came."""
        return self._failure is None

    def status(self) -> str:
        """Returns in one line how it does."""
        told = f"scrapes of {self.target}: {self.num_pages:,} pages"
        if self._last_page is not None:
            told += f", the last {max(0.0, time.monotonic() - self._last_page):.0f} s ago"
        if self.num_failed:
            told += f", {self.num_failed:,} failed"
        if self._reader.num_unread:
            told += f", {self._reader.num_unread:,} lines not understood"
        return told if self._failure is None else f"{told}; now {self._failure}"

    # ------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        due = time.monotonic() + self._offset
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            self.scrape_once()
            due += self._interval * (1 + max(0.0, time.monotonic() - due) // self._interval)

    def scrape_once(self) -> None:
        """Asks for a page, and stores what it says, or that it did not come."""
        ts = time.time_ns()
        try:
            samples = self._page()
            self._store(ts, samples)
        except StepscopeError as error:
            self._failed(ts, str(error))
        except Exception as error:  # the edge to what others wrote: told, and tried again
            self._failed(ts, f"{type(error).__name__}: {error}")
        else:
            self._succeeded()

    def _page(self) -> list[tuple[Series, float]]:
        """Returns the samples of the page as it is now.

        Raises:
            FetchError: There is no page, or none of an engine.
        """
        text = self._client.get(self._path, accept=ACCEPT).decode("utf-8", "replace")
        lines, _ = whole_lines(text)
        samples = [(series, value) for series, value, _ in self._reader.read(lines)]
        if all(series.is_of_server for series, _ in samples):
            names = names_text(self._reader.left_out)
            there = f": there are {names}" if names else ""
            raise FetchError(f"its page has no metric of vLLM or SGLang{there}")
        return samples

    def _store(self, ts: int, samples: list[tuple[Series, float]]) -> None:
        for series, value in samples:
            self._engines.learn(series, value)
        if self._num_described != self._engines.num_changes:
            self._num_described = self._engines.num_changes
            for engine, row in self._engines.rows(ts).items():
                self._rows.describe(engine, row)
        self._rows.add("samples", sample_rows(self._engines, ts, samples))
        self._store_up(ts, 1.0)

    def _store_up(self, ts: int, value: float) -> None:
        numbers = self._engines.all_numbers()
        self._rows.add("samples", [_up(engine, ts, value) for engine in numbers])

    def _succeeded(self) -> None:
        self.num_pages += 1
        self._last_page = time.monotonic()
        if self._failure is not None:
            _log.info("%s answers again", printable(self.target))
            self._failure = None

    def _failed(self, ts: int, reason: str) -> None:
        if self._stop.is_set():
            return
        self.num_failed += 1
        if self._failure != reason:
            _log.warning("%s could not be scraped: %s", printable(self.target), printable(reason))
            self._failure = reason
        self._store_up(ts, 0.0)


def _up(engine: int, ts: int, value: float) -> Row:
    return {"engine": engine, "ts": ts, "source": SOURCE, "metric": "up", "value": value}


def target_of(url: SplitResult, path: str) -> str:
    """Returns the name of a target: host and port as Prometheus has it in `instance`."""
    port = url.port or (443 if url.scheme == "https" else 80)
    host = url.hostname or ""
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return name if path == PATH else name + path

"""Pages as vLLM and SGLang write them, directories of them, and a server that shows them."""

from __future__ import annotations

import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from telemetry.sources.prometheus.engines import number_of
from telemetry.sources.prometheus.pages import import_scrapes
from telemetry.sources.telling import ImportTold
from telemetry.store import open_log
from tests.captured import DATA

START = 1_790_000_000
"""Seconds since the Unix epoch at which written pages begin."""
MODEL = "tiny-llama"


@cache
def real_page(name: str = "preemption_storm", number: int = 8) -> str:
    """Returns the text of a page that was captured from a real vLLM."""
    with tarfile.open(DATA / "scrapes" / f"{name}.tar.xz") as packed:
        members = sorted(m.name for m in packed.getmembers() if m.isfile())
        file = packed.extractfile(members[number])
        assert file is not None
        return file.read().decode()


def vllm_page(**values: float) -> str:
    """Returns a page of a vLLM with one engine: names without prefix, `_total` where it belongs."""
    labels = f'{{engine="0",model_name="{MODEL}"}}'
    return "".join(f"vllm:{name}{labels} {value}\n" for name, value in values.items())


def sglang_page(count: int) -> str:
    """Returns a page of an SGLang 0.5 of two tensor-parallel ranks, after `count` of everything."""
    both = [
        f'{{engine_type="unified",model_name="m",pp_rank="0",tp_rank="{rank}"}}' for rank in (0, 1)
    ]
    of_ranks = "".join(
        f"sglang:num_running_reqs{labels} 8.0\nsglang:num_queue_reqs{labels} 3.0\n"
        f"sglang:token_usage{labels} 0.5\nsglang:num_retracted_reqs{labels} 1.0\n"
        f"sglang:num_retracted_requests_total{labels} {count}.0\n"
        f"sglang:max_total_num_tokens{labels} 50000.0\nsglang:gen_throughput{labels} 99.5\n"
        + "".join(
            f'sglang:realtime_tokens_total{labels[:-1]},mode="{mode}"}} {count * tokens}.0\n'
            for mode, tokens in (("decode", 100), ("prefill_compute", 20), ("prefill_cache", 5))
        )
        for labels in both
    )
    return of_ranks + (
        f'sglang:prompt_tokens_total{{model_name="m"}} {count * 30}.0\n'
        f'sglang:generation_tokens_total{{model_name="m"}} {count * 90}.0\n'
        f'sglang:cached_tokens_total{{cache_source="device",model_name="m"}} {count * 4}.0\n'
        f'sglang:cached_tokens_total{{cache_source="host",model_name="m"}} {count}.0\n'
        f'sglang:num_requests_total{{model_name="m"}} {count}.0\n'
    )


def write(directory: Path, *pages: str, every: float = 15.0) -> Path:
    """Writes pages of one target, `every` seconds apart; returns their directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(pages):
        name = f"metrics_{number:03d}_{START + every * number:.3f}.prom"
        (directory / name).write_text(text)
    return directory


def bring(log: Path, directory: Path) -> ImportTold:
    """Imports a directory, under its name."""
    return import_scrapes(log, directory, directory.name, lambda done, total: None)


def rows(log: Path, sql: str) -> list[tuple[Any, ...]]:
    """Returns what a statement gives on a log."""
    with open_log(log) as opened:
        return [tuple(row.values()) for row in opened.query(sql).to_pylist()]


def engine(target: str, rank: str = "0") -> int:
    return number_of(target, rank)


# --------------------------------------------------------------------------------- over HTTP

Answer = Callable[[BaseHTTPRequestHandler], None]


def text(body: str | bytes, status: int = 200, **headers: str) -> Answer:
    """Answers with a whole page."""
    content = body.encode() if isinstance(body, str) else body

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return answer


class PageServer:
    """A server on this host; `answer` says what it does with the next request."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[tuple[str, dict[str, str]]] = []
        """Path and headers of each request."""
        self.released = threading.Event()
        """Set at the end, so that an answer that hangs does not hang for ever."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                outer.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def hang(self, request: BaseHTTPRequestHandler) -> None:
        """Answers nothing at all."""
        self.released.wait()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(answer: Answer) -> Iterator[PageServer]:
    server = PageServer(answer)
    try:
        yield server
    finally:
        server.close()

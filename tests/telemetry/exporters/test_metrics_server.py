"""The collector's page over HTTP."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from telemetry.exporters.metrics_server import MOST_AT_ONCE, MetricsServer


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[], bytes]], MetricsServer]]:
    opened: list[MetricsServer] = []

    def start(read: Callable[[], bytes]) -> MetricsServer:
        opened.append(MetricsServer("127.0.0.1", 0, read))
        return opened[-1]

    yield start
    for server in opened:
        server.close()


def ask(
    server: MetricsServer, path: str = "/metrics", method: str = "GET"
) -> tuple[int, str, bytes]:
    """Returns status, content type and body."""
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read()
    finally:
        connection.close()


Serve = Callable[[Callable[[], bytes]], MetricsServer]


def test_the_page_is_made_anew_for_each_scrape(serve: Serve) -> None:
    pages = iter([b"one 1\n", b"two 2\n"])
    server = serve(lambda: next(pages))
    assert [ask(server)[2] for _ in range(2)] == [b"one 1\n", b"two 2\n"]
    status, kind, _ = ask(serve(lambda: b"x 1\n"), "/metrics?debug=1")
    assert status == 200
    assert kind.startswith("text/plain; version=")


def test_a_page_that_cannot_be_made_fails_the_scrape_and_says_why(serve: Serve) -> None:
    def fail() -> bytes:
        raise RuntimeError("the log is being opened\n# HELP evil")

    status, _, body = ask(serve(fail))
    assert (status, body.count(b"\n")) == (503, 1)
    assert b"the log is being opened" in body


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/", "GET", 404), ("/metrics/../etc", "GET", 404), ("/metrics", "POST", 501)],
)
def test_there_is_one_page_and_one_way_to_ask(
    path: str, method: str, status: int, serve: Serve
) -> None:
    assert ask(serve(lambda: b""), path, method)[0] == status


def test_more_scrapes_at_once_than_sensible_are_turned_away(serve: Serve) -> None:
    begun = threading.Semaphore(0)
    go = threading.Event()

    def slow() -> bytes:
        begun.release()
        go.wait(30)
        return b"x 1\n"

    server = serve(slow)
    scrapes = [threading.Thread(target=ask, args=(server,)) for _ in range(MOST_AT_ONCE)]
    for scrape in scrapes:
        scrape.start()
    for _ in scrapes:
        assert begun.acquire(timeout=30)
    assert ask(server)[0] == 503
    go.set()
    for scrape in scrapes:
        scrape.join()
    assert ask(server)[0] == 200


def test_a_port_that_is_taken_is_an_error(serve: Serve) -> None:
    port = urlsplit(serve(lambda: b"").url).port
    assert port is not None
    with pytest.raises(OSError, match="in use"):
        MetricsServer("127.0.0.1", port, lambda: b"")


def test_an_ipv6_address_is_written_in_brackets() -> None:
    try:
        server = MetricsServer("::1", 0, lambda: b"x 1\n")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    try:
        assert server.url.startswith("http://[::1]:")
        assert ask(server)[0] == 200
    finally:
        server.close()

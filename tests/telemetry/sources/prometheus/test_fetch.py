"""Pages over HTTP: whole and in time, or a reason; never from somewhere else."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from telemetry.errors import StepscopeError
from telemetry.sources.prometheus.fetch import Access, Client, FetchError, read_url
from tests.telemetry.sources.prometheus.pages import Answer, PageServer, serving, text


def client(url: str, *, access: Access | None = None, timeout: float = 20.0) -> Client:
    return Client(
        read_url("--scrape", url), access or Access(), timeout_seconds=timeout, most_bytes=1000
    )


def get(answer: Answer, **settings: float) -> bytes:
    with serving(answer) as server:
        return client(server.url, **settings).get("/metrics", accept="text/plain")  # type: ignore[arg-type]


def reason(answer: Answer, **settings: float) -> str:
    with pytest.raises(FetchError) as told:
        get(answer, **settings)
    return str(told.value)


def test_a_page_is_what_was_sent() -> None:
    assert get(text("vllm:a 1\n")) == b"vllm:a 1\n"


def test_a_page_may_come_in_chunks_or_without_a_length() -> None:
    def chunks(request: BaseHTTPRequestHandler) -> None:
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"3\r\nvll\r\n6\r\nm:a 1\n\r\n0\r\n\r\n")

    def no_length(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b"vllm:a 1\n")

    assert get(chunks) == get(no_length) == b"vllm:a 1\n"


def test_a_server_that_hangs_has_failed_in_time() -> None:
    with serving(text("")) as server:
        server.answer = server.hang
        with pytest.raises(FetchError, match=r"no whole answer in 0\.2 s"):
            client(server.url, timeout=0.2).get("/metrics", accept="*/*")


def test_a_server_that_dribbles_has_failed_in_time() -> None:
    def dribble(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b"x")

    assert reason(dribble) == "it answers with more than 0 MiB"

    stopped = threading.Event()

    def slow(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not stopped.wait(0.05):
            request.wfile.write(b"#")

    try:
        assert reason(slow, timeout=0.4) == "no whole answer in 0.4 s"
    finally:
        stopped.set()


def test_a_server_that_dies_in_the_middle_gave_no_page() -> None:
    def half(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "500")
        request.end_headers()
        request.wfile.write(b"vllm:a 1\n")

    assert reason(half) == "the answer broke off"


def test_other_answers_are_told() -> None:
    assert reason(text("no", status=404)) == "it answers 404 Not Found"
    assert reason(text("x" * 1001)) == "it answers with more than 0 MiB"
    assert "BadStatusLine" in reason(lambda request: request.wfile.write(b"garbage\r\n\r\n"))


def test_nobody_there() -> None:
    with serving(text("")) as server:
        url = server.url
    with pytest.raises(FetchError, match="connection refused"):
        client(url).get("/", accept="*/*")


def test_the_same_server_may_send_on() -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        if request.path == "/metrics":
            text("", status=307, Location="/metrics/")(request)
        else:
            text("vllm:a 1\n")(request)

    assert get(answer) == b"vllm:a 1\n"


def test_another_server_is_not_asked_and_is_shown_no_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with serving(text("vllm:a 1\n")) as other, serving(text("")) as server:
        server.answer = text("", status=302, Location=f"{other.url}/metrics")
        with pytest.raises(FetchError, match=f"sends on to another server, {other.url}: name"):
            client(server.url, access=Access(token_file=token)).get("/metrics", accept="*/*")
        assert other.seen == []
        assert server.seen[0][1]["authorization"] == "Bearer secret"


def test_a_circle_ends() -> None:
    assert reason(text("", status=302, Location="/metrics")) == "it sends on in a circle"


def test_a_token_is_read_anew_each_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with serving(text("a 1\n")) as server:
        asking = client(server.url, access=Access(token_file=token))
        for secret in ("one", "two"):
            token.write_text(secret)
            asking.get("/", accept="*/*")
        assert [seen["authorization"] for _, seen in server.seen] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("content", ["", "a b", "a\nb", "ä"])
def test_what_is_no_token_is_not_sent(tmp_path: Path, content: str) -> None:
    token = tmp_path / "token"
    token.write_text(content)
    with serving(text("a 1\n")) as server:
        with pytest.raises(FetchError, match="the token file"):
            client(server.url, access=Access(token_file=token)).get("/", accept="*/*")
        assert server.seen == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:8000", "write an address"),
        ("ftp://x", "write an address"),
        ("http://", "write an address"),
        ("http://x:99999", "write an address"),
        ("http://x/a b", "write an address"),
        ("http://x/\x1b[31m", "write an address"),
        ("http://user:pass@x", "would stand in the log"),
    ],
)
def test_what_is_no_address_is_refused(url: str, told: str) -> None:
    with pytest.raises(StepscopeError, match=told):
        read_url("--scrape", url)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this host, and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl binary: apt-get install openssl")
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(path), "-out", f"{path}.crt",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[str]:
    """The address of a server with that certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text("vllm:a 1\n")(self)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda request, address: None  # type: ignore[method-assign]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_certificate_is_trusted_by_name_or_not_at_all(secure: str, certificate: Path) -> None:
    with pytest.raises(FetchError, match="its certificate is not accepted"):
        client(secure).get("/", accept="*/*")
    for access in (Access(ca_file=Path(f"{certificate}.crt")), Access(verify=False)):
        assert client(secure, access=access).get("/", accept="*/*") == b"vllm:a 1\n"


def test_certificates_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StepscopeError, match="cannot be read"):
        client("https://x", access=Access(ca_file=tmp_path / "none.pem"))


def test_it_can_be_ended_from_another_thread() -> None:
    asked = threading.Event()

    def hang(request: BaseHTTPRequestHandler) -> None:
        asked.set()
        server.hang(request)

    server = PageServer(hang)
    asking = client(server.url, timeout=60)
    failed: list[FetchError] = []

    def ask() -> None:
        try:
            asking.get("/", accept="*/*")
        except FetchError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(20)
    asking.close()
    thread.join(timeout=20)
    server.close()
    assert len(failed) == 1

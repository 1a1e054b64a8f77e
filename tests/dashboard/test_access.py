"""Who may look: off by default, by a proxy's header, by OIDC; what is missing is said."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import stepscope
from dashboard import theme
from dashboard.login import VARIABLE
from tests.dashboard.browsing import chromium, needs_chromium
from tests.dashboard.serving import dashboard
from tests.dashboard.test_views import APP, Show, said

HEADER = "X-Forwarded-User"
PUBLIC = "steps.test"


def main(login: str | None, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    if login is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, login)
    test = AppTest.from_file(str(APP), default_timeout=60).run()
    assert not test.exception
    return test


def test_by_default_whoever_reaches_it_may_look(
    storm_log: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(storm_log)
    assert "The KV pool holds 9" in said(main(None, monkeypatch))


@pytest.mark.parametrize(
    ("login", "missing"),
    [
        (f"header:{HEADER}", f"no header `{HEADER}`"),
        ("oidc", "not configured"),
        ("nonsense", "names no log-in that there is"),
    ],
)
def test_without_a_name_nothing_of_the_log_is_shown(
    login: str, missing: str, storm_log: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(storm_log)
    text = said(main(login, monkeypatch))
    assert missing in text
    assert "tiny-llama" not in text


@pytest.mark.parametrize("text", ["basic", "header:", "header:a b", "header:x\r\ny"])
def test_a_log_in_that_there_is_not_is_a_usage_error(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        stepscope.main(["dashboard", "--login", text])
    assert "it is off, oidc, or header:NAME" in capsys.readouterr().err


def test_a_public_name_is_allowed_beside_loopback() -> None:
    options = theme.options("127.0.0.1", 8501, public=PUBLIC)
    assert options["server.allowedHosts"] == [*theme.LOOPBACK, PUBLIC]
    assert options["browser.serverAddress"] == PUBLIC


# -------------------------------------------------------------------------- behind a reverse proxy


@contextlib.contextmanager
def proxy(upstream: int, name: str | None) -> Iterator[int]:
    """A reverse proxy: strips the visitor's own header, and puts in the name that it knows."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, upstream, name), daemon=True).start()
        yield server.getsockname()[1]


def _serve(server: socket.socket, upstream: int, name: str | None) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_pass_on, args=(client, upstream, name), daemon=True).start()


def _pass_on(client: socket.socket, upstream: int, name: str | None) -> None:
    """Passes on one request, or one WebSocket for as long as it lives."""
    with contextlib.closing(client), socket.create_connection(("127.0.0.1", upstream)) as behind:
        head = b""
        while b"\r\n\r\n" not in head and (part := client.recv(65536)):
            head += part
        first, _, rest = head.partition(b"\r\n\r\n")
        lines = [line for line in first.split(b"\r\n") if not line.lower().startswith(_DROPPED)]
        if not any(line.lower().startswith(b"upgrade:") for line in lines):
            lines = [line for line in lines if not line.lower().startswith(b"connection:")]
            lines.append(b"Connection: close")
        if name is not None:
            lines.append(f"{HEADER}: {name}".encode())
        behind.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
        back = threading.Thread(target=_pump, args=(behind, client), daemon=True)
        back.start()
        _pump(client, behind)
        back.join()


_DROPPED = HEADER.lower().encode() + b":"


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize(
    ("name", "shown"), [("ada", "The KV pool holds 9"), (None, "Not for everybody")]
)
def test_a_proxy_s_header_opens_the_pages(name: str | None, shown: str, storm_log: Path) -> None:
    arguments = ("--login", f"header:{HEADER}", "--public", PUBLIC)
    with (
        dashboard(storm_log, *arguments) as served,
        proxy(int(served.url.rsplit(":", 1)[1]), name) as port,
        chromium(f"--host-resolver-rules=MAP {PUBLIC} 127.0.0.1") as browser,
    ):
        page = browser.new_page(extra_http_headers={HEADER: "mallory"})
        page.goto(f"http://{PUBLIC}:{port}/overview")
        page.get_by_text(shown).wait_for(timeout=60_000)
        page.close()

"""Who is let in: keys of the API, and operators here and elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engine.config import ConfigError
from engine.server.access import read_admin_token, read_secrets
from engine.server.settings import ServerSettings
from tests.engine.server.in_process import make_core, serving_in_process
from tests.engine.server.server_process import SECONDS, launch

KEY, OTHER_KEY, TOKEN = "key-of-one-caller", "key-of-another-one", "token-of-the-operator"
ELSEWHERE = {"x-forwarded-for": "203.0.113.5"}
WEB_PAGE = {"origin": "http://203.0.113.5"}
OPERATORS_PATHS = (
    *("/pause?mode=new", "/resume", "/reset_prefix_cache", "/abort_requests"),
    "/stepscope/integrity",
)


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@pytest.fixture(scope="module")
def bare() -> Iterator[httpx.Client]:
    yield from _client(ServerSettings())


@pytest.fixture(scope="module")
def guarded() -> Iterator[httpx.Client]:
    yield from _client(ServerSettings(api_keys=(KEY, OTHER_KEY), admin_token=TOKEN))


def _client(settings: ServerSettings) -> Iterator[httpx.Client]:
    with (
        serving_in_process(make_core(), settings=settings) as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as http,
    ):
        yield http


@pytest.mark.parametrize("path", OPERATORS_PATHS)
def test_without_a_token_only_this_machine_operates(bare: httpx.Client, path: str) -> None:
    assert bare.post(path).status_code == 200
    for headers in (
        ELSEWHERE,
        WEB_PAGE,
        ELSEWHERE | bearer(TOKEN),
        ELSEWHERE | {"authorization": "Bearer"},
    ):
        answer = bare.post(path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, None)


@pytest.mark.parametrize("path", OPERATORS_PATHS)
def test_with_a_token_whoever_shows_it_operates(guarded: httpx.Client, path: str) -> None:
    for where in ({}, ELSEWHERE, WEB_PAGE):
        assert guarded.post(path, headers=where | bearer(TOKEN)).status_code == 200
    assert guarded.post(path).status_code == 200
    for headers in (ELSEWHERE, WEB_PAGE, ELSEWHERE | bearer(KEY), ELSEWHERE | bearer(TOKEN[:-1])):
        answer = guarded.post(path, headers=headers)
        assert answer.status_code == 403
        assert "admin token" in answer.json()["error"]["message"]


@pytest.mark.parametrize("key", [KEY, OTHER_KEY, TOKEN])
def test_each_key_opens_the_api(guarded: httpx.Client, key: str) -> None:
    answer = guarded.post("/v1/completions", json={"prompt": [1]}, headers=bearer(key))
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        {"authorization": "Bearer ключ".encode()},
        {"authorization": KEY},
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_without_a_key_nobody_is_served(
    guarded: httpx.Client, path: str, headers: dict[str, str | bytes]
) -> None:
    answer = guarded.post(path, content=b"not even read", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert guarded.get("/v1/models", headers=headers).status_code == 401


def test_probes_need_no_key(guarded: httpx.Client) -> None:
    assert [guarded.get(path).status_code for path in ("/health", "/live")] == [200, 200]


def secret_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "secrets"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_keys_are_a_files_lines(tmp_path: Path) -> None:
    assert read_secrets(secret_file(tmp_path, f"{KEY}\n\n {OTHER_KEY}\n"), "") == (KEY, OTHER_KEY)
    assert read_secrets(None, "") == ()
    assert read_admin_token(secret_file(tmp_path, TOKEN)) == TOKEN


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (KEY, 0o644, "can be read by others: chmod 600"),
        (KEY, 0o640, "can be read by others: chmod 600"),
        ("\n", 0o600, "is empty"),
        (f"{KEY}\nshort", 0o600, "fewer than 16 characters"),
        ("\xe9" * 20, 0o600, "cannot be read"),
        (f"{KEY}\n{TOKEN}", 0o600, "has 2 tokens"),
    ],
)
def test_a_file_that_keeps_no_secret_is_refused(
    tmp_path: Path, text: str, mode: int, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read_admin_token(secret_file(tmp_path, text, mode))


@pytest.mark.parametrize("flag", ["--api-key-file", "--admin-token-file"])
def test_a_missing_file_is_exit_code_two(tmp_path: Path, flag: str) -> None:
    process = launch("--scripted-step-seconds", "0", flag, str(tmp_path / "none"))
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 2, output
    assert f"{flag} {tmp_path / 'none'} cannot be read" in output

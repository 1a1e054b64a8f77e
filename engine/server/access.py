"""Who may ask for what: the API key of `/v1`, and who counts as an operator.

An operator is whoever calls from the engine's own machine, or shows the admin token. Where there is
no token, the operator's paths do not exist for callers elsewhere. A caller whom a proxy on this
machine passes on counts as the address that the proxy names. A web page is not trusted for where
its browser runs: browsers say which page asks (`Origin`), and such a request needs the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import stat
from pathlib import Path

from fastapi import HTTPException, Request

from engine.config import ConfigError
from engine.server.api_error import ApiError

SHORTEST_SECRET = 16
"""Characters below which a secret can be guessed."""


class Access:
    """Checks callers of one server.

    Args:
        api_keys: any of them opens `/v1`; without one it is open.
        admin_token: what an operator elsewhere shows; None lets nobody elsewhere in.
    """

    def __init__(self, api_keys: tuple[str, ...] = (), admin_token: str | None = None) -> None:
        self._api_keys = api_keys
        self._admin_token = admin_token

    def check_api_key(self, request: Request) -> None:
        """Lets whoever shows a key, or the admin token, into `/v1`; other paths are open to it.

        Raises:
            ApiError: 401, a key is needed and this is none.
        """
        if not self._api_keys or not request.url.path.startswith("/v1/"):
            return
        shown = _bearer(request)
        # All keys are compared, so that the time does not say which of them it was.
        if not sum(_equal(shown, key) for key in (*self._api_keys, self._admin_token)):
            raise ApiError(
                401,
                "this API needs a key: send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
            )

    def check_operator(self, request: Request) -> None:
        """Lets operators pass.

        Raises:
            HTTPException: 404 where only this machine may ask, 403 where a token would help.
        """
        if _equal(_bearer(request), self._admin_token):
            return
        if is_from_this_machine(request) and "origin" not in request.headers:
            return
        if self._admin_token is None:
            raise HTTPException(404)
        raise HTTPException(403, "only with the admin token, as 'Authorization: Bearer TOKEN'")


def is_from_this_machine(request: Request) -> bool:
    """Whether a caller's address is a loopback one, or the very one that it called."""
    if request.client is None:
        return False
    server = request.scope.get("server")
    if server is not None and request.client.host == server[0]:
        return True
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:  # a name: not from a socket
        return False


def read_secrets(path: Path | None, flag: str) -> tuple[str, ...]:
    """Returns the secrets in a file, one a line; none where there is no file.

    Raises:
        ConfigError: it cannot be read, others can read it too, or it holds none that will do.
    """
    if path is None:
        return ()
    try:
        mode = path.stat().st_mode
        secrets = tuple(path.read_text(encoding="ascii").split())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {path} cannot be read: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{flag} {path} can be read by others: chmod 600 {path}")
    if not secrets:
        raise ConfigError(f"{flag} {path} is empty: put one secret on a line")
    if any(len(secret) < SHORTEST_SECRET for secret in secrets):
        raise ConfigError(
            f"{flag} {path} has a secret of fewer than {SHORTEST_SECRET} characters: take a longer "
            "one, like that of `openssl rand -hex 32`"
        )
    return secrets


def read_admin_token(path: Path | None) -> str | None:
    """Returns the token of operators elsewhere; raises as `read_secrets` does."""
    secrets = read_secrets(path, "--admin-token-file")
    if len(secrets) > 1:
        raise ConfigError(f"--admin-token-file {path} has {len(secrets)} tokens: it must have one")
    return secrets[0] if secrets else None


def _bearer(request: Request) -> str | None:
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    return shown.strip() if scheme.lower() == "bearer" else None


def _equal(shown: str | None, secret: str | None) -> bool:
    if shown is None or secret is None:
        return False
    return hmac.compare_digest(shown.encode("utf-8", "replace"), secret.encode())

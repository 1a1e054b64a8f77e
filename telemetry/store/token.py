"""Who may read a log over TCP: whoever knows a token that lies outside the log's directory.

The token is not encrypted on its way, and neither are the answers: between machines, put the
connection into a tunnel.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from telemetry.errors import CollectorError, LogNotFound

TOKEN_VARIABLE = "STEPSCOPE_TOKEN_FILE"
SHORTEST_TOKEN = 16
LONGEST_TOKEN = 512
_SCHEME = "tcp:"


@dataclass(frozen=True, slots=True)
class Door:
    """Where a collector listens for readers of other machines, and what they must know."""

    host: str
    port: int
    token: str


def open_door(listen: str | None, token_file: Path | None, log: Path) -> Door | None:
    """Returns the door that two flags ask for; None without them. A missing token file is made.

    Raises:
        CollectorError: One flag is missing, the address is none, or the token is not safe.
    """
    if listen is None and token_file is None:
        return None
    if listen is None or token_file is None:
        raise CollectorError(
            "--listen and --token-file belong together: nobody reads over TCP without a token"
        )
    address = _address(listen)
    if address is None:
        raise CollectorError(f"--listen is {listen!r}: write HOST:PORT, like 127.0.0.1:7431")
    return Door(*address, _own_token(token_file, log))


def _own_token(path: Path, log: Path) -> str:
    """Returns the token of a collector."""
    if path.resolve().is_relative_to(log.resolve()):
        raise CollectorError(
            f"the token file {path} lies in the log directory {log}, where every copy of the log "
            "takes it along: put it elsewhere"
        )
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise CollectorError(f"the token file {path} cannot be made: {error.strerror}") from None
    try:
        return read_token(path)
    except LogNotFound as error:
        raise CollectorError(str(error)) from None


def read_token(path: Path) -> str:
    """Returns the token in a file that is its owner's alone.

    Raises:
        LogNotFound: There is none that may be used.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        token = path.read_text(errors="replace").strip()
    except OSError as error:
        raise LogNotFound(f"the token file {path} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise LogNotFound(f"the token file {path} is readable by others: chmod 600 {path}")
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
        raise LogNotFound(
            f"the token in {path} has {len(token)} characters: it has {SHORTEST_TOKEN} to "
            f"{LONGEST_TOKEN}"
        )
    return token


def remote_address(target: Path) -> tuple[str, int] | None:
    """Returns host and port of `tcp://HOST:PORT`, which a path turns into `tcp:/HOST:PORT`.

    None where the target is a directory.

    Raises:
        LogNotFound: It begins like an address and is none.
    """
    text = str(target)
    if not text.startswith(_SCHEME):
        return None
    address = _address(text.removeprefix(_SCHEME).lstrip("/"))
    if address is None:
        raise LogNotFound(f"{text} is no address: write tcp://HOST:PORT")
    return address


def readers_token(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the token that a reader shows.

    Raises:
        LogNotFound: No file is named, or it holds none.
    """
    path = environ.get(TOKEN_VARIABLE)
    if not path:
        raise LogNotFound(f"a log over TCP needs a token: name its file in {TOKEN_VARIABLE}")
    return read_token(Path(path))


def _address(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        return None
    return host.strip("[]"), int(port)

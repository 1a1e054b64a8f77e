"""Block hashes as the log keeps them: keyed, with a key that each log has for itself.

vLLM's hash of a block is one of its tokens and of all before them. Whoever has it can try out which
prompt it was. So what is stored is a keyed hash of the hash. The key is drawn once for a log and
lies in its directory (`kv_events.key`, its owner's alone): hashes compare equal within the log,
over imports and starts of the collector, and with no other log. A bundle does not take it along.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from telemetry.errors import StepscopeError
from telemetry.sources.kv_events.messages import BlockHash

KEY_NAME = "kv_events.key"
KEY_BYTES = 32
HASH_BYTES = 8


def key_of(log: Path) -> bytes:
    """Returns the key of a log; draws one for a log that has none. The directory is there.

    Raises:
        StepscopeError: The key cannot be read or made.
    """
    path = log / KEY_NAME
    try:
        with suppress(FileExistsError):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
        key = path.read_bytes()
    except OSError as error:
        raise StepscopeError(f"{path} cannot be used: {error.strerror or error}") from None
    if len(key) != KEY_BYTES:
        raise StepscopeError(
            f"{path} has {len(key)} bytes and should have {KEY_BYTES}: remove it, and block hashes "
            "of now will not be compared with those of before"
        )
    return key


class BlockHasher:
    """Turns an engine's block hashes into those of the log."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def text(self, block: BlockHash) -> str:
        """Returns 16 hex digits that stand for a block."""
        data = block if isinstance(block, bytes) else str(block).encode()
        return blake2b(data, key=self._key, digest_size=HASH_BYTES).hexdigest()

    def texts(self, blocks: Iterable[BlockHash]) -> str:
        """Returns the same for several, with spaces between."""
        return " ".join(map(self.text, blocks))

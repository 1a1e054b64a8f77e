"""The number of an engine that says none itself.

A recorded engine draws 64 random bits at its start. A source from outside sees only a name (a
target, a log file, a rank), so its number is a digest of that: the same name is the same engine, in
every import and on every host, and a restart behind the name does not change it.
"""

from __future__ import annotations

import hashlib

_LARGEST = (1 << 64) - 2
"""The largest value of the type is NULL in a ring."""


def engine_number(*names: str) -> int:
    """Returns the engine's number for the names that tell it apart, at least 1."""
    text = "\0".join(names)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % _LARGEST


def content_number(digest: bytes) -> int:
    """Returns the number of an import for the digest of what was read, at least 1."""
    return 1 + int.from_bytes(digest[:8], "big") % _LARGEST

"""KV blocks in a directory: they outlive the engine, and several engines share them.

    PATH/<namespace>/manifest.json          what the blocks are of: model, dtype, block size, layers
    PATH/<namespace>/<2 hex>/<key>.kv       one file a block, see `block_file`

The namespace is a digest of the manifest, so engines that differ in anything that shapes KV never
meet. Directories have mode 0700 and files 0600: blocks are what prompts became.

The bound holds for everything in PATH. Least recently used is oldest by modification time, which a
read renews. An engine looks through the directory when it has written a sixteenth of the bound
since it last did: what other engines write meanwhile it sees only then.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from engine.config import ConfigError
from engine.connectors.block_file import HEADER_BYTES, read_block_file, write_block_file
from engine.connectors.block_store import BlockStoreError, Payload
from engine.kv_cache.block_index import BlockKey

NAMESPACE_BYTES = 16
BOUND_PARTS = 16
"""The directory is looked through whenever this part of its bound has been written."""
STALE_TEMPORARY_SECONDS = 3600.0
"""A temporary file that is older is what a killed engine left."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A file in the directory: its path, its size, and when it was last used (s)."""

    path: str
    num_bytes: int
    used: float


class SharedDirectoryStore:
    """Blocks of one model in a directory that others may use at the same time.

    Args:
        path: the directory; it is made where it is not.
        manifest: everything that decides whether KV is interchangeable.
        max_bytes: what all files in it may take up together.

    Raises:
        ConfigError: the directory cannot be used, or others may write into it.
    """

    def __init__(self, path: Path, manifest: Mapping[str, Any], *, max_bytes: int) -> None:
        described = json.dumps(manifest, sort_keys=True)
        self.namespace = blake2b(described.encode(), digest_size=NAMESPACE_BYTES).digest()
        self.max_bytes = max_bytes
        self._root = path
        self._home = path / self.namespace.hex()
        self._lock = threading.Lock()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(path)
            self._home.mkdir(mode=0o700, exist_ok=True)
            self._write_manifest(described)
            self._num_bytes_known = self._make_room()
        except OSError as error:
            raise ConfigError(f"shared_storage_path {path} cannot be used: {error}") from None
        self._num_bytes_written = 0

    def has(self, key: BlockKey) -> bool:
        """Whether there is a file of that block."""
        return self._path(key).exists()

    def read(self, key: BlockKey) -> Payload:
        """Returns a block's bytes. A file that is not what it should be is removed.

        Raises:
            BlockStoreError: it is not there (any more), or is not what was stored.
        """
        path = self._path(key)
        try:
            payload = read_block_file(path, self.namespace, key)
            os.utime(path)
        except BlockStoreError:
            path.unlink(missing_ok=True)
            raise
        except OSError as error:
            raise BlockStoreError(f"{path} cannot be read: {error}") from None
        return payload

    def write(self, key: BlockKey, payload: Payload) -> None:
        """Keeps a block, and removes what has not been used for long where the bound is reached.

        Raises:
            BlockStoreError: it cannot be kept.
        """
        path = self._path(key)
        try:
            if path.exists():
                os.utime(path)
                return
            self._reserve(payload.nbytes + HEADER_BYTES)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_block_file(path, self.namespace, key, payload)
        except OSError as error:
            raise BlockStoreError(f"{path} cannot be written: {error}") from None

    def _path(self, key: BlockKey) -> Path:
        name = key.hex()
        return self._home / name[:2] / f"{name}.kv"

    def _write_manifest(self, described: str) -> None:
        path = self._home / "manifest.json"
        if path.exists():
            if path.read_text(encoding="utf-8") != described:
                raise ConfigError(f"{path} is not what its directory says: remove {self._home}")
            return
        temporary = path.with_name(f".manifest.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        temporary.touch(mode=0o600, exist_ok=False)
        temporary.write_text(described, encoding="utf-8")
        temporary.rename(path)

    def _reserve(self, num_bytes: int) -> None:
        """Makes sure that so many bytes more stay within the bound."""
        if num_bytes > self.max_bytes:
            raise BlockStoreError(
                f"a block takes up {num_bytes:,} bytes but max_bytes is {self.max_bytes:,}: "
                "raise it"
            )
        with self._lock:
            self._num_bytes_written += num_bytes
            self._num_bytes_known += num_bytes
            is_full = self._num_bytes_known > self.max_bytes
            if is_full or self._num_bytes_written > self.max_bytes // BOUND_PARTS:
                self._num_bytes_written = 0
                self._num_bytes_known = self._make_room(num_bytes) + num_bytes

    def _make_room(self, num_bytes: int = 0) -> int:
        """Removes the files that were used longest ago; returns what is left of all, in bytes.

        Where the bound is passed, a sixteenth of it is freed besides, or each write would look
        through the directory again.
        """
        found = self._find()
        total = sum(file.num_bytes for file in found)
        if total + num_bytes <= self.max_bytes:
            return total
        goal = max(0, self.max_bytes - self.max_bytes // BOUND_PARTS - num_bytes)
        for file in sorted(found, key=lambda each: each.used):
            if total <= goal:
                break
            Path(file.path).unlink(missing_ok=True)
            total -= file.num_bytes
        return total

    def _find(self) -> list[_Found]:
        """Returns the blocks of all models in the directory; what killed engines left is removed.

        Only names that this class gives are looked at, and only they are ever removed.
        """
        found, now = [], time.time()
        for pattern in ("*/??/*.kv", "*/??/.*.tmp"):
            for path in self._root.glob(pattern):
                try:
                    about = path.lstat()
                except OSError:  # another engine removed it meanwhile
                    continue
                if path.suffix == ".kv":
                    found.append(_Found(str(path), about.st_size, about.st_mtime))
                elif now - about.st_mtime > STALE_TEMPORARY_SECONDS:
                    path.unlink(missing_ok=True)
        return found


def _check_private(path: Path) -> None:
    """Refuses a directory of somebody else, or that others may write into.

    Raises:
        ConfigError: it is one: what is in it could be anybody's.
    """
    about = path.stat()
    if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"shared_storage_path {path} belongs to user {about.st_uid} and has mode "
            f"{stat.S_IMODE(about.st_mode):o}: KV in it could be anybody's; use a directory of "
            "your own (chmod 700)"
        )

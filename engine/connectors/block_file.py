"""One KV block in one file: a header that says whose it is, then its bytes.

    magic 8 | bytes of the payload 8 | namespace 16 | key 16 | digest 16 | payload

Numbers are little-endian. The digest covers everything else: a file that was cut short, written
over, renamed or made by another model is told from the right one, and never becomes KV.
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b
from pathlib import Path

import numpy as np

from engine.connectors.block_store import BlockStoreError, Payload
from engine.kv_cache.block_index import BlockKey

MAGIC = b"STEPKV\x01\n"
DIGEST_BYTES = 16
_HEAD = struct.Struct("<8sQ16s16s")
HEADER_BYTES = _HEAD.size + DIGEST_BYTES


def write_block_file(path: Path, namespace: bytes, key: BlockKey, payload: Payload) -> None:
    """Writes a block so that nobody ever sees half of it, readable by its owner alone.

    It is not forced to the disk: what a power failure leaves of it fails its digest.

    Raises:
        OSError: it cannot be written; nothing is left behind then.
    """
    head = _HEAD.pack(MAGIC, payload.nbytes, namespace, key)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            _write_all(file.fileno(), head + _digest(head, payload))
            _write_all(file.fileno(), payload.data)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_block_file(path: Path, namespace: bytes, key: BlockKey) -> Payload:
    """Returns the bytes of a block.

    Raises:
        BlockStoreError: the file is not that block, or not whole.
        OSError: it cannot be read.
    """
    content = np.fromfile(path, np.uint8)
    head = content[: _HEAD.size].tobytes()
    payload = content[HEADER_BYTES:]
    if content.nbytes < HEADER_BYTES or head != _HEAD.pack(MAGIC, payload.nbytes, namespace, key):
        raise BlockStoreError(f"{path} is cut short, or is not the block that its name says")
    if content[_HEAD.size : HEADER_BYTES].tobytes() != _digest(head, payload):
        raise BlockStoreError(f"{path} is damaged: its bytes do not fit their digest")
    return payload


def _digest(head: bytes, payload: Payload) -> bytes:
    digest = blake2b(head, digest_size=DIGEST_BYTES)
    digest.update(payload.data)
    return digest.digest()


def _write_all(descriptor: int, content: bytes | memoryview) -> None:
    view = memoryview(content).cast("B") if len(content) else memoryview(b"")
    while view.nbytes:
        view = view[os.write(descriptor, view) :]

"""Keys say what is equal in one engine start, and nothing more."""

from __future__ import annotations

from hashlib import sha256

from telemetry.sources.vllm.keys import HASH_BYTES, SaltedKeys

BLOCK = sha256(b"a block of a prompt").digest()


def test_equal_texts_have_equal_keys_in_one_start() -> None:
    keys = SaltedKeys()
    assert keys.of("salt") == keys.of("salt") != keys.of("other")


def test_another_start_has_other_keys() -> None:
    assert SaltedKeys().of("salt") != SaltedKeys().of("salt")
    assert SaltedKeys().of_blocks([BLOCK]) != SaltedKeys().of_blocks([BLOCK])


def test_hashes_of_vllm_are_not_in_those_of_the_record() -> None:
    hashed = SaltedKeys().of_blocks([BLOCK, BLOCK])
    assert len(hashed) == 2 * HASH_BYTES
    assert hashed[:HASH_BYTES] == hashed[HASH_BYTES:]
    assert hashed[:HASH_BYTES] not in BLOCK


def test_nothing_has_no_key() -> None:
    assert SaltedKeys().of(None) is None

"""The runner's very small model, for transfers of real KV."""

from tests.engine.runner.conftest import (
    _one_thread,
    small_checkpoint,
    small_model,
    small_reference,
)

__all__ = ["_one_thread", "small_checkpoint", "small_model", "small_reference"]

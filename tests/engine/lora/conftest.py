from tests.engine.runner.conftest import _one_thread, small_checkpoint, small_reference

__all__ = ["_one_thread", "small_checkpoint", "small_reference"]

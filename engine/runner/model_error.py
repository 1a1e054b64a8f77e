"""The error of a checkpoint that cannot be served."""

from __future__ import annotations


class ModelError(ValueError):
    """A checkpoint that cannot be loaded; the message says which, why, and what to do."""

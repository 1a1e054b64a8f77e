"""What is wrong with an adapter."""

from __future__ import annotations


class AdapterError(ValueError):
    """An adapter that cannot be served; the message says which, why, and what would help."""

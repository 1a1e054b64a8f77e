"""The error of a setting that cannot be used."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that cannot be used; the message says which, its value, the limit, the remedy."""

"""A bundle: one file with a window of a step log, to be given away and opened anywhere.

Its tour: `contents` says which rows of each table belong to a window; `salting` replaces what names
people, machines and requests; `making` writes the file; `command` is `stepscope bundle`. Who opens
one is `telemetry.store`, which trusts nothing in it.
"""

from __future__ import annotations

from telemetry.bundle.making import BundleReport, make_bundle

__all__ = ["BundleReport", "make_bundle"]

"""A bundle: one file with a window of a step log, to be given away and opened anywhere.

Its tour: `contents` says which rows of each table belong to a window; `salting` replaces what names
people, machines and requests; `making` writes the file; `command` is `stepscope bundle`. Who opens
one is `telemetry.store`, which trusts nothing in it. Importing this package imports nothing.
"""

"""`stepscope query`: one statement, or a saved query by its name, on a step log.

Its tour: `saved` finds queries by name, `window` turns `--since` and `--until` into moments of the
log, `parameters` gives a query its values, `listing` is `--list`, `command` is the command line.
The saved queries themselves are files in `telemetry/sql/queries`.
"""

"""The errors of telemetry that are meant for people.

    StepscopeError            a message that says what, the value, the limit, the remedy
    ├── LogNotFound           there is no step log where one was asked for
    ├── LogBusy               somebody else has the step log open
    ├── LogDamaged            a file of the step log cannot be read
    ├── QueryRefused          the statement is not one that a reader may run
    ├── QueryFailed           the statement is wrong: DuckDB's own message
    ├── QueryTimeout          the statement ran longer than it may
    ├── PostRefused           a finding, or what is said of one, may not be stored so
    ├── RingError             a file that is not a ring, or not a whole one
    ├── ImportRefused         something cannot be imported, or is there already
    └── CollectorError        a collector that cannot start, or does not answer

The command line turns each of them into one line and exit code 2.
"""

from __future__ import annotations


class StepscopeError(ValueError):
    """Something that a person can put right; the message says how."""


class LogNotFound(StepscopeError):  # noqa: N818 - named after what is wrong
    """There is no step log in the directory."""


class LogBusy(StepscopeError):  # noqa: N818
    """Another process holds the step log's files."""


class LogDamaged(StepscopeError):  # noqa: N818
    """A file of the step log is not one, or not a whole one."""


class QueryRefused(StepscopeError):  # noqa: N818
    """The statement is not a single reading statement."""


class QueryFailed(StepscopeError):  # noqa: N818
    """DuckDB could not run the statement."""


class QueryTimeout(StepscopeError):  # noqa: N818
    """The statement ran into its time limit."""


class PostRefused(StepscopeError):  # noqa: N818
    """Rows that were posted are not such as the log takes."""


class RingError(StepscopeError):
    """A file is not a ring that can be read."""


class CollectorError(StepscopeError):
    """A collector cannot start, or does not answer."""


class ImportRefused(StepscopeError):  # noqa: N818
    """Something cannot be imported into a step log, or is in it already."""

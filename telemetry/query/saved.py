"""Saved queries: files of SQL with a name, those of the library and the user's own.

A user's file of the same name stands in for the library's.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from telemetry.errors import QueryRefused
from telemetry.sql import VIEWS
from telemetry.sql.documentation import SavedQuery, parse_query
from telemetry.sql.schema import BASE_TABLES

SUFFIX = ".sql"
_NAME = re.compile(r"[A-Za-z][\w-]*")


def is_name(text: str) -> bool:
    """Returns whether a text can be a query's name; no statement is a single word."""
    return _NAME.fullmatch(text.strip()) is not None


def library_queries() -> dict[str, SavedQuery]:
    """Returns the queries that come with the program, by name."""
    return _queries_in(resources.files("telemetry.sql").joinpath("queries").iterdir())


def own_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns where a user's own queries are looked for."""
    root = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(root) / "stepscope" / "queries"


def saved_queries(own: Path | None = None) -> dict[str, SavedQuery]:
    """Returns all queries by name: the library's, and those in `own` (or the usual directory).

    Raises:
        QueryRefused: The directory was named and is none, or a file in it cannot be read.
    """
    directory = own_directory() if own is None else own
    if not directory.is_dir():
        if own is not None:
            raise QueryRefused(f"--queries {own} is no directory: name one with .sql files in it")
        return library_queries()
    try:
        return library_queries() | _queries_in(directory.iterdir())
    except (OSError, ValueError) as error:
        raise QueryRefused(f"the queries in {directory} cannot be read: {error}") from None


def find_query(name: str, queries: Mapping[str, SavedQuery]) -> SavedQuery:
    """Returns the query of that name.

    Raises:
        QueryRefused: There is none; the message says what is meant, or close to it.
    """
    name = name.strip()
    if name in queries:
        return queries[name]
    if name in VIEWS or name in BASE_TABLES:
        kind = "view" if name in VIEWS else "table"
        raise QueryRefused(f'{name} is a {kind}, no saved query: write "FROM {name} LIMIT 10"')
    near = difflib.get_close_matches(name.lower().replace("_", "-"), queries, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`stepscope query --list` names them"
    raise QueryRefused(f"there is no saved query {name}: {hint}")


def _queries_in(files: Iterable[Traversable]) -> dict[str, SavedQuery]:
    found = sorted((file for file in files if file.name.endswith(SUFFIX)), key=lambda f: f.name)
    names = {file: file.name.removesuffix(SUFFIX) for file in found}
    return {
        name: parse_query(name, file.read_text(encoding="utf-8")) for file, name in names.items()
    }

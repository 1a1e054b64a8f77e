"""Which engines `doctor --deep` asks for their books, and what it makes of the answers.

Without an address these are the engines that run and write to this log; each says in its ring where
its API listens. An engine that cannot be asked is named with the reason: that nobody checked it is
no sign of health.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from telemetry.doctor.books import Books, NotAskedError, ask_for_books
from telemetry.doctor.facts import SeenRing
from telemetry.errors import StepscopeError
from telemetry.rendering import engine_hex, printable

Verdict: TypeAlias = Literal["healthy", "broken", "not_checked"]

ASKABLE = "stepscope"
"""The source of the engines that have such a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepCheck:
    """One engine's books. `engine` is None where only an address was given.

    `reason` says why it was not checked, or what is wrong.
    """

    engine: str | None
    url: str | None
    verdict: Verdict
    reason: str | None = None
    duration_ns: int | None = None
    counts: dict[str, int] | None = None

    @property
    def title(self) -> str:
        """What was checked, for a headline."""
        who = "" if self.engine is None else f" of engine {self.engine}"
        where = "" if self.url is None else f" at {printable(self.url)}"
        return f"deep check{who}{where}"


def check_address(url: str) -> DeepCheck:
    """Returns what the engine behind an address says of its books.

    Raises:
        StepscopeError: it is no address.
    """
    try:
        return _judged(None, url, ask_for_books(url))
    except NotAskedError as error:
        return DeepCheck(engine=None, url=url, verdict="not_checked", reason=str(error))


def check_running(rings: Mapping[int, SeenRing]) -> list[DeepCheck]:
    """Returns what each running engine says of its books; `rings` are those of the log."""
    return [_check_ring(engine, ring) for engine, ring in rings.items() if ring.is_held]


def exit_code(checks: Iterable[DeepCheck]) -> int:
    """Returns 1 if an engine is broken, 3 if none could be checked, else 0."""
    verdicts = {check.verdict for check in checks}
    return 1 if "broken" in verdicts else 0 if "healthy" in verdicts else 3


def _check_ring(engine: int, ring: SeenRing) -> DeepCheck:
    name, url = engine_hex(engine), ring.description.get("api_url")
    try:
        books = _books_of(ring, url)
    except StepscopeError as error:
        return DeepCheck(engine=name, url=url, verdict="not_checked", reason=str(error))
    return _judged(name, url, books)


def _books_of(ring: SeenRing, url: str | None) -> Books:
    """Asks the engine that writes a ring.

    Raises:
        StepscopeError: it cannot be asked.
    """
    source = ring.identity.get("source")
    if source != ASKABLE:
        raise NotAskedError(f"{source} has no such check: only Stepscope's own engine has")
    if url is None:
        raise NotAskedError("it has not said where its API listens, if it has one: use --url")
    books = ask_for_books(url)
    asked = (ring.identity["pid"], ring.identity["wall_anchor_ns"])
    if (books.pid, books.started_ts) != asked:
        raise NotAskedError(f"another engine answers at {url}, pid {books.pid}")
    return books


def _judged(engine: str | None, url: str | None, books: Books) -> DeepCheck:
    return DeepCheck(
        engine=engine,
        url=url,
        verdict="broken" if books.problems else "healthy",
        reason="; ".join(books.problems) or None,
        duration_ns=books.duration_ns,
        counts=books.counts,
    )

"""Imports a directory of scrapes, page by page in the order of their times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from telemetry.errors import ImportRefused
from telemetry.sources.importing import Import
from telemetry.sources.prometheus.directory import (
    PageFile,
    Scrapes,
    UnreadPageError,
    find_scrapes,
    read_page_file,
)
from telemetry.sources.prometheus.engines import SOURCE, Engines
from telemetry.sources.prometheus.notes import add_notes, names_text
from telemetry.sources.prometheus.page import PageReader, whole_lines
from telemetry.sources.prometheus.series import Series
from telemetry.sources.prometheus.storing import Storing
from telemetry.sources.telling import ImportTold

MOST_TARGETS_TOLD = 12
"""Targets up to which it is told how many pages of each were read."""


def import_scrapes(
    log: Path, directory: Path, name: str, moved: Callable[[int, int], None]
) -> ImportTold:
    """Imports the pages in a directory and below; returns what was read.

    Args:
        log: directory of the step log.
        directory: where the pages lie.
        name: the target of the pages on its top.
        moved: is told how many pages are done, and how many there are.

    Raises:
        ImportRefused: There are no pages, none of an engine, or all of them are in the log.
    """
    return _import(log, find_scrapes(directory, name), directory, moved)


def import_file(log: Path, path: Path, name: str, moved: Callable[[int, int], None]) -> ImportTold:
    """Imports a single page; its name must have a time.

    Raises:
        ImportRefused: It is no page of an engine, or it is in the log.
    """
    scrapes = Scrapes()
    scrapes.add(path.parent, [path.name], name)
    scrapes.add_flags(path.parent, path.parent, name)
    return _import(log, scrapes, path, moved)


def _import(
    log: Path, scrapes: Scrapes, place: Path, moved: Callable[[int, int], None]
) -> ImportTold:
    digest = scrapes.digest()
    with Import(log, source=SOURCE, name=str(place), digest=digest, unit="pages") as job:
        _Pages(job, scrapes).store(moved)
    return job.told


class _Pages:
    """The pages of one import."""

    def __init__(self, job: Import, scrapes: Scrapes) -> None:
        self._told = job.told
        self._scrapes = scrapes
        self._reader = PageReader()
        pages = scrapes.pages
        there = job.moments(SOURCE, pages[0].ts, pages[-1].ts)
        self._engines = {
            target: Engines(target, scrapes.flags.get(target))
            for target in sorted({page.target for page in pages})
        }
        self._stores = {
            target: Storing(job, engines, there) for target, engines in self._engines.items()
        }
        self._num_pages_there = 0
        self._cut: list[str] = []

    def store(self, moved: Callable[[int, int], None]) -> None:
        """Stores all pages.

        Raises:
            ImportRefused: None of them is an engine's.
        """
        for reason in self._scrapes.unread:
            self._told.unread(reason)
        for done, page in enumerate(self._scrapes.pages, 1):
            try:
                self._store_page(page)
            except UnreadPageError as error:
                self._told.unread(f"{page.path.name}: {error}")
            moved(done, len(self._scrapes.pages))
        self._check()
        self._note()

    def _store_page(self, page: PageFile) -> None:
        lines, cut = whole_lines(read_page_file(page.path))
        engines = self._engines[page.target]
        num_unread = self._reader.num_unread
        samples = [(series, value) for series, value, _ in self._reader.read(lines)]
        if all(series.is_of_server for series, _ in samples):
            raise UnreadPageError(_no_engine(self._reader, samples, num_unread))
        for series, value in samples:
            engines.learn(series, value)
        if cut is not None:
            self._cut.append(f"{page.path.name} after {cut}")
        if self._stores[page.target].put(page.ts, samples):
            self._told.read(page.target if len(self._stores) <= MOST_TARGETS_TOLD else "pages")
        else:
            self._num_pages_there += 1

    def _check(self) -> None:
        """Refuses an import that brought nothing.

        Raises:
            ImportRefused: None of the pages is an engine's.
        """
        if self._told.num_read or self._num_pages_there:
            return
        names = names_text(self._reader.left_out)
        examples = "; ".join(self._told.examples[:2])
        raise ImportRefused(
            f"no page in {self._told.name} is a vLLM's or an SGLang's: "
            f"{f'there are {names}' if names else examples}. Save there what their /metrics shows"
        )

    def _note(self) -> None:
        told = self._told
        if self._num_pages_there:
            told.notes.append(
                f"pages that the log had already, and that are not in it twice: "
                f"{self._num_pages_there:,}"
            )
        if self._cut:
            told.notes.append(
                f"pages without an end, whose last metric is left out: {len(self._cut):,}, like "
                f"{self._cut[0]}"
            )
        if len(self._stores) > MOST_TARGETS_TOLD:
            told.notes.append(f"targets: {len(self._stores):,}")
        if self._scrapes.others:
            told.notes.append(
                f"files that are no pages: {len(self._scrapes.others):,}, like "
                f"{self._scrapes.others[0]}"
            )
        add_notes(told, self._reader)


def _no_engine(
    reader: PageReader, samples: list[tuple[Series, float]], num_unread_before: int
) -> str:
    """Returns why a page is not one of an engine."""
    if samples or reader.num_unread == num_unread_before:
        return "no metric of vLLM or SGLang"
    examples = reader.take_unread()
    return f"no page of metrics: {examples[0][:60]!r}" if examples else "no page of metrics"

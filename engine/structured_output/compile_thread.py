"""Compiles grammars beside the step loop, one after the other."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.sampling import StructuredOutputsParams
from engine.structured_output.compiler import NAMES, GrammarCompiler, GrammarError

COMPILE_SECONDS = 30.0
"""How long a grammar may take. Nearly all take milliseconds; some that look harmless take hours."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """What became of a grammar: it is there, or why it is not."""

    wanted: StructuredOutputsParams
    grammar: Any | None
    error: str | None = None


@dataclass(eq=False, slots=True)
class _Worker:
    """A thread, and since when (monotonic) it compiles what."""

    wanted: StructuredOutputsParams | None = None
    since: float = 0.0


class CompileThread:
    """A queue of grammars and the thread that works it off; xgrammar leaves Python to the others.

    A compilation cannot be interrupted. One that takes too long counts as failed and is left to
    itself: another thread goes on with the queue.

    Args:
        on_done: is called in the thread when a compilation has ended; `take_done` has it then.
        limit_seconds: what is too long.
    """

    def __init__(
        self,
        compiler: GrammarCompiler,
        *,
        on_done: Callable[[], None],
        limit_seconds: float = COMPILE_SECONDS,
    ) -> None:
        self._compiler = compiler
        self._on_done = on_done
        self.limit_seconds = limit_seconds
        self._todo: queue.SimpleQueue[StructuredOutputsParams] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Compilation] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def submit(self, wanted: StructuredOutputsParams) -> None:
        """Queues a grammar."""
        self._todo.put(wanted)
        if self._worker is None:
            self._start()

    def take_done(self, wait_seconds: float = 0.0) -> list[Compilation]:
        """Returns what has ended since the last call, waiting so long for the first of it."""
        done = self._overdue()
        try:
            done.append(
                self._done.get(timeout=wait_seconds) if wait_seconds else self._done.get(False)
            )
            while True:
                done.append(self._done.get(False))
        except queue.Empty:
            return done

    def _overdue(self) -> list[Compilation]:
        """Gives up what takes too long."""
        with self._lock:
            worker = self._worker
            wanted = None if worker is None else worker.wanted
            if worker is None or wanted is None:
                return []
            if time.monotonic() - worker.since <= self.limit_seconds:
                return []
            self._worker = None
        self._start()
        error = (
            f"{NAMES[wanted.kind]} takes more than {self.limit_seconds:.0f} s to compile: "
            "make it smaller"
        )
        return [Compilation(wanted, None, error)]

    def _start(self) -> None:
        worker = self._worker = _Worker()
        threading.Thread(
            target=self._work, args=(worker,), name="grammar-compiler", daemon=True
        ).start()

    def _work(self, worker: _Worker) -> None:
        while True:
            self._done.put(self._compile(worker, self._todo.get()))
            self._on_done()
            with self._lock:
                worker.wanted = None
                if self._worker is not worker:
                    return

    def _compile(self, worker: _Worker, wanted: StructuredOutputsParams) -> Compilation:
        try:
            self._compiler.load(wanted.kind)  # takes what it takes
            worker.since = time.monotonic()
            worker.wanted = wanted
            return Compilation(wanted, self._compiler.compile(wanted))
        except GrammarError as error:
            return Compilation(wanted, None, str(error))
        except Exception as error:  # whoever waits has to be told, whatever it is
            return Compilation(wanted, None, f"{type(error).__name__}: {error}")

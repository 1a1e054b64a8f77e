"""A vLLM that serves, the plug-in's record of it, and the witness beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from diagnose.diagnosis import EngineDiagnosis, diagnose
from engine.runner.tiny_llama import tiny_llama
from telemetry.collector import start_collector, stop_collector
from telemetry.store import open_log
from tests.whole_line.vllm.ledger import RequestLedger, read_ledgers, witness_lines
from tests.whole_line.vllm.load import Body, Stretch, send
from tests.whole_line.vllm.replaying import differences
from tests.whole_line.vllm.server import VllmServer, serving, wait_until

DRAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Installed:
    """A vLLM's Python, and the folder beside it that the plug-in was installed into."""

    python: Path
    wheel: Path
    site: Path


@dataclass(frozen=True, slots=True)
class RecordedVllm:
    """A running server with the log that its record goes into."""

    server: VllmServer
    log: Path
    witness: Path

    def play(self, bodies: Sequence[Body], *, at_once: int | None = None) -> Stretch:
        """Sends requests, and returns their stretch once all of it is in the log.

        Each must have been answered to its end.
        """
        stretch = send(self.server.url, bodies, at_once=at_once)
        assert {result.failure for result in stretch.results} == {None}
        self.wait_for_the_end_of(len(bodies), stretch)
        return stretch

    def wait_for_the_end_of(self, num_requests: int, stretch: Stretch) -> None:
        """Waits until the server is idle and the log has the ends of so many requests."""
        wait_until(self.server.is_idle, DRAIN_SECONDS)
        ends = f"SELECT count(*) AS n FROM request_finishes WHERE ts >= {stretch.start_ts}"
        try:
            wait_until(lambda: self.rows(ends)[0]["n"] >= num_requests, DRAIN_SECONDS)
        except TimeoutError:
            raise AssertionError(
                f"the log has {self.rows(ends)[0]['n']} of {num_requests} ends; the plug-in said: "
                f"{self.plugin_said() or 'nothing'}"
            ) from None

    def plugin_said(self) -> list[str]:
        """Returns what the plug-in had to say in vLLM's output; nothing where all is well."""
        lines = self.server.output.read_text(errors="replace").splitlines()
        return [line for line in lines if "stepscope: " in line or line.startswith("recorder: ")]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Returns what a query gives."""
        with open_log(self.log) as opened:
            return opened.query(sql).to_pylist()

    def diagnosed(self, stretch: Stretch) -> EngineDiagnosis:
        """Returns what the rules say of a stretch of the one engine."""
        with open_log(self.log) as opened:
            (engine,) = diagnose(opened, stretch.window).engines
        return engine

    def replay_differences(self) -> dict[int, list[tuple[int, str]]]:
        """Returns for each engine what our scheduler decides differently in a replay of its run."""
        with open_log(self.log) as opened:
            engines = [row["engine"] for row in opened.query("FROM engines").to_pylist()]
            return {engine: differences(opened, engine) for engine in engines}

    def ledgers(self) -> dict[str, RequestLedger]:
        """Returns the books of all requests so far, as the witness heard of them."""
        return read_ledgers(witness_lines(self.witness))

    def skip_reasons(self, stretch: Stretch) -> set[str]:
        """Returns why requests were set aside in a stretch."""
        sql = (
            "SELECT DISTINCT skip_reason_name(reason) AS name FROM request_events "
            f"WHERE kind = event_kind('skipped') AND {stretch.where}"
        )
        return {row["name"] for row in self.rows(sql)}

    def stop_reasons(self, stretch: Stretch) -> set[str]:
        """Returns why admission ended in a stretch while somebody waited."""
        sql = (
            "SELECT DISTINCT stop_reason AS name FROM admission_stops "
            f"WHERE num_waiting > 0 AND {stretch.where}"
        )
        return {row["name"] for row in self.rows(sql)}


@contextlib.contextmanager
def recorded_vllm(
    installed: Installed,
    folder: Path,
    flags: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Iterator[RecordedVllm]:
    """Runs a recorded server with a collector beside it, all of it in `folder`."""
    log, rings, witness = (folder / name for name in ("log", "rings", "witness"))
    for directory in (log, rings, witness):
        directory.mkdir()
    recording = {"STEPSCOPE_LOG": str(log), "STEPSCOPE_RING_DIR": str(rings)}
    inside = {
        **recording,
        "PYTHONPATH": str(installed.site),
        "STEP_WITNESS": str(witness),
        **(environment or {}),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in recording.items():
            patch.setenv(name, value)
        start_collector(log, linger_seconds=600)
        try:
            with serving(
                installed.python, tiny_llama(), folder / "vllm.log", flags, inside
            ) as server:
                yield RecordedVllm(server, log, witness)
            wait_until(lambda: not list(rings.glob("*.ring")), DRAIN_SECONDS)
        finally:
            stop_collector(log)

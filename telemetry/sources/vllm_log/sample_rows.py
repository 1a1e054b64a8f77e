"""Lines of numbers on their way into `samples`: which engine they are of, and when they were."""

from __future__ import annotations

import json

from telemetry.sources.vllm_log.engines import LogEngines
from telemetry.sources.vllm_log.heads import dp_rank
from telemetry.sources.vllm_log.stats import Sample, StatsLine

SOURCE = "vllm-log"
MOST_BEHIND_NS = 2 * 10**9
"""A line that follows the line of every ten seconds is written at most so much later."""
MOST_PROCESSES = 10_000
"""Names of processes of which something is remembered."""


class SampleRows:
    """Makes rows of the numbers of one log."""

    def __init__(self, engines: LogEngines) -> None:
        self._engines = engines
        self.has_stats = False
        self.has_iterations = False
        self.num_preemptions_printed = 0
        """Numbers of preemptions that the log printed, of whatever kind."""
        self._rank_of_process: dict[str | None, str] = {}
        self._ts_of_stats: dict[tuple[str | None, str], int] = {}
        self._labels: dict[object, str] = {}

    def take(self, line: StatsLine, process: str | None, ts: int) -> None:
        """Takes a line that a process wrote at a time."""
        self._forget_some()
        rank = line.engine or self._rank_of(process)
        self._rank_of_process[process] = rank
        if line.is_iteration:
            self.has_iterations = True
        else:
            self.has_stats = True
            ts = self._ts_of(line, process, rank, ts)
        self._engines.add_samples(
            rank, [self._row(sample, rank, process, ts) for sample in line.samples]
        )

    def take_preemptions(self, total: int, process: str | None, ts: int) -> None:
        """Takes V0's number of preemptions so far."""
        rank = self._rank_of(process)
        sample = Sample("log:preemptions_total", float(total))
        self._engines.add_samples(rank, [self._row(sample, rank, process, ts)])

    def _rank_of(self, process: str | None) -> str:
        """Returns the rank for a line that names none: the process's, or of its line before."""
        rank = dp_rank(process)
        return self._rank_of_process.get(process, "0") if rank is None else str(rank)

    def _ts_of(self, line: StatsLine, process: str | None, rank: str, ts: int) -> int:
        """Returns the time of a line of numbers; one that follows another has that one's."""
        before = self._ts_of_stats.get((process, rank))
        if line.is_following and before is not None and 0 <= ts - before <= MOST_BEHIND_NS:
            return before
        self._ts_of_stats[process, rank] = ts
        return ts

    def _row(self, sample: Sample, rank: str, process: str | None, ts: int) -> dict[str, object]:
        if sample.metric.startswith("log:preemptions"):
            self.num_preemptions_printed += 1
        return {
            "ts": ts,
            "source": SOURCE,
            "metric": sample.metric,
            "labels": self._label_text(rank, process, sample.labels),
            "value": sample.value,
        }

    def _label_text(
        self, rank: str, process: str | None, labels: tuple[tuple[str, str], ...]
    ) -> str:
        key = (rank, process, labels)
        if key not in self._labels:
            named = {"engine": rank, **dict(labels)}
            if process is not None:
                named["process"] = process
            self._labels[key] = json.dumps(named, sort_keys=True)
        return self._labels[key]

    def _forget_some(self) -> None:
        for memory in (self._rank_of_process, self._ts_of_stats, self._labels):
            if len(memory) > MOST_PROCESSES:
                memory.clear()

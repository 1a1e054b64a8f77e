"""The collector: a process of its own that drains rings into the step log and answers queries.

Its tour: `rings` finds the rings and keeps how far each was read; `derive` turns what a ring holds
into rows of tables; `flush` gathers and writes them, read positions in the same transactions;
`collector` is the loop; `endpoint` answers SQL and takes findings, which `inbox` has written;
`process` starts, finds and stops a collector, `keeper` restarts one that has died, and `analyst`
keeps the program beside it that evaluates the rules.

Which rings are whose: a ring carries the directory of its log, and a collector takes those of its
own log. A ring without a log (a plug-in that was told none) is taken by the first collector that
locks its claim file.
"""

from __future__ import annotations

from telemetry.collector.collector import Collector, prepare_log
from telemetry.collector.keeper import keep_collector
from telemetry.collector.process import ensure_collector, start_collector, stop_collector
from telemetry.store.presence import CollectorNotice, find_collector

__all__ = [
    "Collector",
    "CollectorNotice",
    "ensure_collector",
    "find_collector",
    "keep_collector",
    "prepare_log",
    "start_collector",
    "stop_collector",
]

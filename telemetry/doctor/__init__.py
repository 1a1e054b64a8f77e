"""`stepscope doctor`: can the record be believed?

For each engine: is it alive, or where did it die; is every step in the log; do the record and the
engine's own counters agree; how far behind is the collector; what was never measured. Each check
says what it looked at, with its number; what cannot be known is a dash, never a tick.

With `--deep` every running engine is asked to check its own books as well.

Its tour: `facts` asks the log and looks at the rings, `checks` judges one engine, `plugin` tells
what the plug-in in a vLLM records, `books` asks a running engine, `deep` says whom, `examination`
puts it together, `report` and `deep_report` tell it.
"""

from __future__ import annotations

from telemetry.doctor.check import Check
from telemetry.doctor.deep import DeepCheck, exit_code
from telemetry.doctor.examination import examine
from telemetry.doctor.report import EngineHealth, Examination, json_report, text_report

__all__ = [
    "Check",
    "DeepCheck",
    "EngineHealth",
    "Examination",
    "examine",
    "exit_code",
    "json_report",
    "text_report",
]

"""`stepscope doctor`: can the record be believed?

For each engine: is it alive, or where did it die; is every step in the log; do the record and the
engine's own counters agree; how far behind is the collector; what was never measured. Each check
says what it looked at, with its number; what cannot be known is a dash, never a tick.

Its tour: `facts` asks the log and looks at the rings, `checks` judges one engine, `examination`
puts it together, `report` tells it.
"""

from __future__ import annotations

from telemetry.doctor.examination import examine
from telemetry.doctor.report import Check, EngineHealth, Examination, json_report, text_report

__all__ = ["Check", "EngineHealth", "Examination", "examine", "json_report", "text_report"]

"""Writes what `deploy/` has of the rules anew: `python -m diagnose.alerts [DIR]`."""

from __future__ import annotations

import sys
from pathlib import Path

from diagnose.alerts.export import generated, write

if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("deploy")
    for written in write(target, generated()):
        print(written)

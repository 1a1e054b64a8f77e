"""Two windows side by side: what was found, what differs, and which differences are beyond noise.

Its tour: `span` reads `FROM..TO`; `side` is one window of one engine with its diagnosis; `recorded`
and `scraped` take quantities out of a step record or out of scrapes; `noise` says whether two of
them differ by more than chance would have it; `comparison` puts it together; `text`, `page` and
`json_output` write it out; `command` is `stepscope diff`.
"""

from __future__ import annotations

from diagnose.diff.comparison import Diff, FindingChange, Quantity, compare
from diagnose.diff.side import Side, read_side

__all__ = ["Diff", "FindingChange", "Quantity", "Side", "compare", "read_side"]

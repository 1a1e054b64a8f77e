"""Charts as Vega-Lite says them, each of their tables once, without the checks of Altair.

To hold a chart against Vega-Lite's schema takes as long as to build it; tests do that.
"""

from __future__ import annotations

import hashlib
from typing import Any

import altair as alt
import pandas as pd
from altair.utils import schemapi

_PARTS = ("layer", "vconcat", "hconcat", "concat")


def spec_of(chart: Any) -> dict[str, Any]:
    """Returns a chart as Vega-Lite, each of its frames once under `datasets`; the chart is used up.

    The types of all columns have to be written in the chart: there is no frame left to guess from.
    """
    frames: dict[str, pd.DataFrame] = {}
    _take_frames(chart, frames)
    spec: dict[str, Any] = chart.to_dict(validate=False)
    for default in ("continuousWidth", "continuousHeight"):  # of Altair's own theme
        spec.get("config", {}).get("view", {}).pop(default, None)
    return spec | {"datasets": frames}


def trust_charts() -> None:
    """Leaves out Altair's own checks in this process, of each part of a chart as it is made."""
    schemapi.disable_debug_mode()


def _take_frames(part: Any, frames: dict[str, pd.DataFrame]) -> None:
    """Puts a name in the place of each frame in a chart and the charts that it is made of."""
    data = getattr(part, "data", alt.Undefined)
    if isinstance(data, pd.DataFrame):
        name = _name_of(data)
        frames[name] = data
        part.data = alt.NamedData(name=name)
    for kind in _PARTS:
        inner = getattr(part, kind, alt.Undefined)
        for each in inner if isinstance(inner, list) else []:
            _take_frames(each, frames)


def _name_of(frame: pd.DataFrame) -> str:
    """Returns the same name for the same rows: the browser draws anew where it is another."""
    digest = hashlib.sha256(repr(list(frame.columns)).encode())
    digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    return digest.hexdigest()[:16]

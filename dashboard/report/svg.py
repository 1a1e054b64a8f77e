"""A chart as SVG that stands inside an HTML page: small, without an address, ids of its own."""

from __future__ import annotations

import re
from typing import Any

VEGA_LITE = "6.4"

_NAMES = r"xmlns(?::\w+)?|aria-[\w-]+|role|font-family|pointer-events|class|version"
_NEEDLESS = re.compile(rf' (?:{_NAMES})="[^"]*"')
_DIGITS = re.compile(r"(\d+\.\d{2})\d+")
_TAG = re.compile(r"<[^>]*>")
_SIZE = re.compile(r'^<svg[^>]*? viewBox="0 0 (\d+(?:\.\d+)?) (\d+(?:\.\d+)?)"[^>]*>')
_EMPTY = re.compile(r"<g/>|<path d=\"(?:M0,0h0v0h0Z)?\"[^>]*/>")


def to_svg(chart: Any, *, prefix: str, width: int | None = None) -> str:
    """Returns an Altair chart as inline SVG.

    Args:
        chart: the chart, in the colours of one theme.
        prefix: makes its ids differ from those of the page's other charts.
        width: pixels after which it is cut; all of it where None.

    Source: vl-convert renders the very specification that the browser would.
    """
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(
        chart.to_dict(), vl_version=VEGA_LITE, allowed_base_urls=[]
    )
    return embedded(svg, prefix=prefix, width=width)


def embedded(svg: str, *, prefix: str, width: int | None = None) -> str:
    """Returns an SVG document as an element of a page: no namespace, few digits, its own ids."""
    size = _SIZE.match(svg)
    if size is None:
        raise ValueError("the chart has no viewBox: it was not drawn by vl-convert")
    shown = float(size[1]) if width is None else min(float(size[1]), width)
    body = _TAG.sub(_with_few_digits, _NEEDLESS.sub("", svg[size.end() :]))
    body = _EMPTY.sub("", body)
    body = re.sub(r'id="([^"]+)"', rf'id="{prefix}\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", body)
    return f'<svg viewBox="0 0 {shown:g} {float(size[2]):g}" aria-hidden="true">{body}'


def _with_few_digits(tag: re.Match[str]) -> str:
    """Returns a tag whose places have two digits; what is written between tags keeps its own."""
    return _DIGITS.sub(r"\1", tag[0])

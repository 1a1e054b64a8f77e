"""Streamlit's options: both themes from the palette, loopback, headless, no usage statistics."""

from __future__ import annotations

from dashboard import colours
from dashboard.colours import Theme
from diagnose.finding import Severity

FONT = "'Source Sans', 'Source Sans Pro', 'DejaVu Sans', sans-serif"


LOOPBACK = ("127.0.0.1", "localhost", "::1")

Option = str | int | bool | list[str]


def options(host: str, port: int, *, public: str | None = None) -> dict[str, Option]:
    """Returns the options that the dashboard is started with.

    On loopback only pages of this machine, and of the `public` name that a proxy offers it under,
    may talk to it: a foreign page that has its name resolve to 127.0.0.1 is turned away.
    """
    allowed = [*LOOPBACK, *([public] if public else [])]
    return {
        "server.allowedHosts": allowed if host in LOOPBACK else [],
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "browser.gatherUsageStats": False,
        "browser.serverAddress": public or host,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "type",
        "logger.hideWelcomeMessage": True,
        "runner.magicEnabled": False,
        "global.developmentMode": False,
        **_theme("dark"),
        **_theme("light"),
    }


def logo(theme: Theme) -> str:
    """Returns the name with three steps in the colours of work, cost and memory, as SVG."""
    bars = "".join(
        f'<rect x="{x}" y="{24 - h}" width="5" height="{h}" rx="1.5" fill="{c.of(theme)}"/>'
        for x, h, c in ((2, 8, colours.USEFUL), (9, 13, colours.LOST), (16, 18, colours.EVICTED))
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="132" height="28" viewBox="0 0 132 28">'
        f'{bars}<text x="31" y="21" font-family="{FONT.replace(chr(34), "")}" font-size="18" '
        f'font-weight="700" textLength="94" lengthAdjust="spacingAndGlyphs" '
        f'fill="{colours.TEXT.of(theme)}">Stepscope</text></svg>'
    )


def _theme(theme: Theme) -> dict[str, Option]:
    red, orange, yellow, blue = (
        colours.SEVERITIES[severity][1].of(theme)
        for severity in (Severity.critical, Severity.high, Severity.medium, Severity.info)
    )
    values: dict[str, Option] = {
        "primaryColor": colours.LINK.of(theme),
        "backgroundColor": colours.BACKGROUND.of(theme),
        "secondaryBackgroundColor": colours.PANEL.of(theme),
        "textColor": colours.TEXT.of(theme),
        "linkColor": colours.LINK.of(theme),
        "codeBackgroundColor": colours.PANEL.of(theme),
        "borderColor": colours.BORDER.of(theme),
        "dataframeBorderColor": colours.BORDER.of(theme),
        "redColor": red,
        "redTextColor": red,
        "orangeColor": orange,
        "orangeTextColor": orange,
        "yellowColor": yellow,
        "yellowTextColor": yellow,
        "blueColor": blue,
        "blueTextColor": blue,
        "greenColor": colours.HEALTHY[1].of(theme),
        "greenTextColor": colours.HEALTHY[1].of(theme),
        "grayColor": colours.MUTED.of(theme),
        "grayTextColor": colours.MUTED.of(theme),
        "violetColor": colours.LOST.of(theme),
        "violetTextColor": colours.LOST.of(theme),
        "baseRadius": "8px",
    }
    return {f"theme.{theme}.{name}": value for name, value in values.items()}

"""The log-ins that there are, as `--login` names them. Streamlit is not needed to read one."""

from __future__ import annotations

import re

VARIABLE = "STEPSCOPE_DASHBOARD_LOGIN"
"""How `stepscope dashboard` tells the pages which log-in holds."""
OFF, OIDC = "off", "oidc"
_HEADER = re.compile(r"header:([A-Za-z0-9][A-Za-z0-9-]{0,63})")


def header_of(login: str) -> str | None:
    """Returns the header that names the visitor; None for a log-in of another kind."""
    match = _HEADER.fullmatch(login)
    return None if match is None else match[1]


def is_login(text: str) -> bool:
    """Returns whether there is such a log-in."""
    return text in (OFF, OIDC) or header_of(text) is not None

"""Who may look: everybody who reaches the port, or those whom a log-in in front of it names.

Off unless `stepscope dashboard --login` says otherwise: on loopback only this machine's users reach
it. `header:NAME` believes the name that a reverse proxy puts into a header, so nobody but the proxy
may reach the port. `oidc` is Streamlit's own log-in (`[auth]` in its secrets.toml).
"""

from __future__ import annotations

import os

import streamlit as st

from dashboard import states
from dashboard.login import OFF, OIDC, VARIABLE, header_of


def admit() -> bool:
    """Returns whether the visitor may look; says what is missing where not."""
    login = os.environ.get(VARIABLE, OFF)
    header = header_of(login)
    if header is not None:
        return _is_named(header)
    if login == OIDC:
        return _has_logged_in()
    return login == OFF or _refuse(f"`{VARIABLE}` names no log-in that there is.")


def _is_named(header: str) -> bool:
    if (st.context.headers.get(header) or "").strip():
        return True
    return _refuse(
        f"This dashboard is behind a log-in, and your request has no header `{header}`. Reach it "
        "through the proxy that puts it there."
    )


def _has_logged_in() -> bool:
    known = st.user.to_dict()
    if "is_logged_in" not in known:
        return _refuse(
            "Log-in by OIDC is on and not configured: write `[auth]` into `.streamlit/secrets.toml`"
            " where the dashboard is started, and install Authlib."
        )
    if known["is_logged_in"]:
        return True
    states.card("card-login-info", ":blue[●] Log in to look at this log", "By your provider.")
    st.button("Log in", key="login", type="primary", on_click=st.login)
    return False


def _refuse(why: str) -> bool:
    states.card("card-no-access-high", ":orange[▲] Not for everybody", why)
    return False

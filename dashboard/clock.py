"""Parts of a page that are drawn again and again, by a clock that runs in the browser.

Streamlit's own timer (`run_every`) asks for its part whatever else goes on. What it asks while a
button leads to another page names the page that is left, and the browser is taken back to it, or
ends in "Cannot set a node at a delta path". This clock waits until nothing is drawn, and after each
click and key until what it asked for is drawn, or as long as a busy server may need to begin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec

import streamlit as st

LOOK_MS = 100
"""How often the browser looks whether it is time."""
HOLD_MS = 300
"""How long a click, a key or a step back counts as drawing, at least: until the server says so."""
HOLD_ANSWERS = 1.5
"""And how many times the longest answer lately: a busy server says it late."""
MOST_HOLD_MS = 20_000
KEPT = 0.8
"""What of the longest answer counts at the next one."""
CALM_MS = 400
"""How long nothing may be drawn before it asks: a button's page comes after a short pause."""
LOST_MS = 5_000
"""After how long without an answer it asks again, beside the part's own pause."""
KEY = "clock-"
"""How the keys of the clocks' containers begin; the style takes them out of the page."""
_SCRIPT = """
const page = window[Symbol.for('stepscope.clock')] ??= {
  touched: null, isNext: false, timers: {}, asked: {}, longest: performance.now(),
};
if (page.touched === null) {
  page.touched = -MOST_HOLD_MS;
  const touch = () => {
    page.touched = performance.now();
    const asked = Object.values(page.asked).some((at) => page.touched - at < MOST_HOLD_MS);
    page.isNext = !asked;  // what is drawn next is what this click or key asks for
  };
  for (const kind of ['pointerdown', 'pointerup', 'click', 'keydown', 'input', 'popstate']) {
    window.addEventListener(kind, touch, true);
  }
}
const answered = (name) => {
  if (!(name in page.asked)) { return; }
  const took = performance.now() - page.asked[name];
  delete page.asked[name];
  page.longest = Math.max(took, KEPT * page.longest);
};
const hold = () => Math.min(Math.max(HOLD_MS, HOLD_ANSWERS * page.longest), MOST_HOLD_MS);
const isIdle = () => {
  const app = document.querySelector('[data-testid="stApp"]');
  const isDrawn = app?.dataset.testScriptState === 'notRunning';
  if (!isDrawn && page.isNext) { page.touched = -MOST_HOLD_MS; }
  return isDrawn
    && app.dataset.testConnectionState === 'CONNECTED'
    && performance.now() - page.touched > hold();
};
export default function (component) {
  const { name, seconds } = component.data;
  let due = performance.now() + 1000 * seconds;
  let busy = performance.now();
  clearInterval(page.timers[name]);
  answered(name);
  const timer = setInterval(() => {
    if (!component.parentElement.isConnected) { clearInterval(timer); return; }
    if (!isIdle()) { busy = performance.now(); }
    if (performance.now() < due || performance.now() - busy < CALM_MS) { return; }
    due = performance.now() + 1000 * seconds + LOST_MS;  // an answer sets the clock anew
    page.asked[name] = performance.now();
    component.setTriggerValue('tick', true);
  }, LOOK_MS);
  page.timers[name] = timer;
}
"""

_NUMBERS = {
    "LOOK_MS": LOOK_MS,
    "MOST_HOLD_MS": MOST_HOLD_MS,
    "HOLD_MS": HOLD_MS,
    "HOLD_ANSWERS": HOLD_ANSWERS,
    "KEPT": KEPT,
    "CALM_MS": CALM_MS,
    "LOST_MS": LOST_MS,
}
_NUMBER = "last_clock"
"""Where the number of the last setting is kept, from drawing to drawing."""
Args = ParamSpec("Args")


def repeated(draw: Callable[Args, None], name: str, seconds: float | None) -> Callable[Args, None]:
    """Returns a part of a page, drawn anew so long after it was last drawn; None: only when asked.

    Args:
        draw: draws the part.
        name: of the part, once on a page.
        seconds: from one drawing to the next, at least.
    """

    def part(*args: Args.args, **kwargs: Args.kwargs) -> None:
        if seconds is not None:
            _set(name, seconds)
        draw(*args, **kwargs)

    # Streamlit tells fragments of one place apart by their names.
    part.__qualname__ = f"{draw.__qualname__}.{name}"
    part.__module__ = draw.__module__
    return st.fragment(part)


def _set(name: str, seconds: float) -> None:
    """Sets the clock: with another number than before, since the browser runs what is new."""
    number = st.session_state.get(_NUMBER, 0) + 1
    st.session_state[_NUMBER] = number
    with st.container(key=f"{KEY}{name}", height="content"):
        _component()(
            key=f"{name}-clock",
            data={"name": name, "seconds": seconds, "number": number},
            on_tick_change=_told,
        )


def _told() -> None:
    """A tick draws the part anew; that is all."""


def script() -> str:
    """Returns what runs in the browser."""
    text = _SCRIPT
    for name, value in _NUMBERS.items():
        text = text.replace(name, str(value))
    return text


@cache
def _component() -> Callable[..., Any]:
    return st.components.v2.component("stepscope.clock", js=script())

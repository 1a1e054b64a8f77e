"""SQL: ask the log what no page answers. Read only; saved queries, statements of one's own, CSV."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import streamlit as st

from dashboard import asking, links, source, states
from dashboard.asking import LIMITS, LONGEST_IN_ADDRESS, PREFIX, Question
from dashboard.session import Page
from dashboard.style import ROW_PX, table_height
from dashboard.untrusted import in_markdown
from diagnose.words import NOT_MEASURED, engine_hex, plural, stretch
from telemetry.errors import StepscopeError
from telemetry.query.parameters import ENGINE, used_in
from telemetry.query.saved import library_queries, own_directory, saved_queries
from telemetry.rendering import csv_text
from telemetry.sql import VIEWS
from telemetry.sql.documentation import SavedQuery
from telemetry.sql.table_docs import TABLE_DOCS
from telemetry.store import Log, open_log

ASKED, FILLED, SEEN = "sql_asked", "sql_filled", "sql_seen"
"""In the session: what was asked, what the editor was filled with (and how often), the address."""
OWN = ("q", "sql", "of")
"""Parts of the address that name a question, beside its parameters."""
START = "SELECT cause, count(*) AS preemptions\nFROM preemptions\nGROUP BY cause"
OF_ONE_S_OWN = "a statement of your own"
EDITOR_PX, LARGEST_EDITOR_PX = 220, 460
LINE_PX = 20
"""Pixels of a line in the editor, and twice that around them."""
MAX_TABLE_PX = 560


def draw(page: Page) -> None:
    """Draws the editor and, once something was asked, the answer."""
    states.lost(page)
    st.markdown("### Ask the log in SQL")
    st.caption(
        f"One statement that reads; nothing here can change the log. At most {LIMITS.max_rows:,} "
        f"rows and {LIMITS.timeout_seconds:.0f} s. $from_ns and $until_ns are the window above, "
        f"{in_markdown(stretch(page.scope.start_ts, page.scope.end_ts), 80)}; $engine is "
        f"{engine_hex(page.scope.engine)}."
    )
    saved = _saved()
    _arrive(saved)
    question = _editor(saved)
    if st.button("Run", type="primary", key="run"):
        _ask(question)
        st.rerun()
    _link_note(question)
    asked: Question | None = st.session_state.get(ASKED)
    if asked is not None:
        _answer(page, asked, saved.get(asked.saved or ""))
    _what_there_is()


def _saved() -> dict[str, SavedQuery]:
    """Returns the library's queries and the user's own; those alone where the own are broken."""
    try:
        return saved_queries()
    except StepscopeError as error:
        st.warning(in_markdown(str(error), 300))
        return library_queries()


# ------------------------------------------------------------------------------------ the question


def _arrive(saved: dict[str, SavedQuery]) -> None:
    """Takes over what the address names, once; a page that was left finds its question again."""
    for name in OWN:
        links.taken(name)
    parts = _address()
    if parts and parts != st.session_state.get(SEEN):
        st.session_state[SEEN] = parts
        question = asking.of_address(parts, saved)
        if question is not None:
            _take(question)
    if FILLED not in st.session_state:
        _fill(Question(START))


def _address() -> dict[str, str]:
    return {
        key: value for key, value in st.query_params.items() if key in OWN or key.startswith(PREFIX)
    }


def _take(question: Question) -> None:
    st.session_state[ASKED] = question
    _fill(question)


def _fill(question: Question) -> None:
    """Puts a question into the editor: its fields are new ones, with other values to begin with."""
    number, _ = st.session_state.get(FILLED, (0, None))
    st.session_state[FILLED] = (number + 1, question)


def _ask(question: Question) -> None:
    """Keeps the question, and puts it into the address where it is short enough."""
    st.session_state[ASKED] = question
    for key in _address():
        st.query_params.pop(key, None)
    parts = question.address()
    for key, value in parts.items():
        st.query_params[key] = value
    st.session_state[SEEN] = parts


def _editor(saved: dict[str, SavedQuery]) -> Question:
    number, filled = st.session_state[FILLED]
    names = ["", *saved]
    chosen = st.selectbox(
        "Saved query",
        names,
        index=names.index(filled.saved) if filled.saved in names else 0,
        format_func=lambda name: _titled(saved[name]) if name else OF_ONE_S_OWN,
        key=f"sql_saved-{number}",
    )
    if chosen and chosen != filled.saved:
        _load(saved[chosen])
    text = st.text_area(
        "Statement",
        filled.sql.strip(),
        key=f"sql_text-{number}",
        height=_editor_px(filled.sql.strip()),
    )
    sql = text.strip()
    query = saved.get(chosen)
    values = _values(sql, query, dict(filled.values), number)
    of_engine = True
    if ENGINE in used_in(sql):
        of_engine = st.checkbox("Of this engine only", filled.is_of_engine, key=f"of-{number}")
    if query is not None and sql == query.sql.strip():
        return Question(query.sql, values, of_engine, query.name)
    return Question(sql, values, of_engine)


def _editor_px(sql: str) -> int:
    """Returns the height of an editor that shows the whole of a statement of usual length."""
    return min(max(EDITOR_PX, LINE_PX * (sql.count("\n") + 3)), LARGEST_EDITOR_PX)


def _titled(query: SavedQuery) -> str:
    return f"{query.name}: {query.question}" if query.question else query.name


def _load(query: SavedQuery) -> None:
    """Puts a saved query into the editor; it is asked at once where it needs no value."""
    needed = asking.parameters_of(query.sql, query)
    question = Question(
        query.sql, tuple((each.name, each.default or "") for each in needed), True, query.name
    )
    _fill(question)
    st.session_state.pop(ASKED, None)
    if all(each.default is not None for each in needed):
        _ask(question)
    st.rerun()


def _values(
    sql: str, query: SavedQuery | None, filled: dict[str, str], number: int
) -> tuple[tuple[str, str], ...]:
    parameters = asking.parameters_of(sql, query)
    if not parameters:
        return ()
    values = []
    with st.container(horizontal=True, key="asked-values"):
        for each in parameters:
            label = f"\\${in_markdown(each.name)}: {in_markdown(each.doc, 120)} ({each.type})"
            first = filled.get(each.name) or each.default or ""
            value = st.text_input(label, first, key=f"{PREFIX}{each.name}-{number}", width=320)
            values.append((each.name, value[:400]))
    return tuple(values)


def _link_note(question: Question) -> None:
    if question.sql and not question.address():
        st.caption(
            f"Over {LONGEST_IN_ADDRESS:,} characters: the link above does not carry this "
            f"statement. A file NAME.sql in {in_markdown(str(own_directory()), 200)} makes it a "
            "saved query."
        )


# -------------------------------------------------------------------------------------- the answer


def _answer(page: Page, question: Question, query: SavedQuery | None) -> None:
    began = time.perf_counter()
    try:
        values = asking.values_of(question, query, page.scope)
        table, is_cut = _rows(page, question.sql, values)
    except StepscopeError as error:
        _refused(error)
        return
    took = time.perf_counter() - began
    rows = plural(table.num_rows, "row")
    said = f"The first {rows}; there are more: narrow it or add LIMIT." if is_cut else f"{rows}."
    with st.container(horizontal=True, vertical_alignment="center", key="asked-answer"):
        st.markdown(f"**{said}** :gray[{took:.2f} s]", width="content")
        st.download_button(
            "Download CSV",
            csv_text(table),
            file_name=f"{question.saved or 'answer'}.csv",
            mime="text/csv",
            key="csv",
            on_click="ignore",
        )
    st.dataframe(
        asking.frame_of(table),
        hide_index=True,
        height=table_height(table.num_rows, most=MAX_TABLE_PX),
        row_height=ROW_PX,
        placeholder=NOT_MEASURED,
        alt=f"The answer: {said}",
        key="asked-rows",
    )
    if query is not None and query.columns:
        with st.expander("What the columns mean"):
            _documented([(each.name, f"{each.doc} [{each.unit}]") for each in query.columns])


def _refused(error: StepscopeError) -> None:
    """Says what the guard or the database said, as it stands."""
    with st.container(border=True, key="card-refused-high"):
        st.markdown(":orange[▲] **No answer**")
        st.code(str(error)[:2000], language=None, wrap_lines=True)


def _rows(page: Page, sql: str, values: dict[str, object]) -> tuple[pa.Table, bool]:
    """Returns the rows, at most as many as the cap, and whether there are more."""
    if page.is_live:
        return _query(_capped(str(page.path)), sql, values)
    given = tuple(sorted(values.items()))
    return _cached(str(page.path), source.stamp_of(page.path), sql, given)


@st.cache_resource(show_spinner=False, max_entries=4, on_release=lambda log: log.close())
def _capped(path: str) -> Log:
    return open_log(Path(path), limits=LIMITS)


@st.cache_data(show_spinner="Asking …", max_entries=40)
def _cached(
    path: str, stamp: source.Stamp, sql: str, given: tuple[tuple[str, object], ...]
) -> tuple[pa.Table, bool]:
    return _query(_capped(path), sql, dict(given))


def _query(log: Log, sql: str, values: dict[str, object]) -> tuple[pa.Table, bool]:
    table = log.query(sql, values or None)
    return table, log.truncated


def _what_there_is() -> None:
    with st.expander("Tables and views"):
        _documented([(name, view.doc) for name, view in VIEWS.items()])
        _documented([(name, table.doc) for name, table in TABLE_DOCS.items()])


def _documented(lines: list[tuple[str, str]]) -> None:
    st.dataframe(
        [{"name": name, "what it is": doc} for name, doc in lines],
        hide_index=True,
        row_height=ROW_PX,
        column_config={"name": st.column_config.TextColumn(width="medium")},
    )

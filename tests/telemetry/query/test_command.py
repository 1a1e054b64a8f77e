"""`stepscope query` as people run it: formats, names, windows, parameters, untrusted text."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from telemetry.commands import add_commands
from telemetry.errors import QueryFailed, QueryRefused, StepscopeError
from telemetry.query.saved import library_queries
from telemetry.sql import MACRO_DOCS, VIEWS
from telemetry.sql.schema import BASE_TABLES
from tests.telemetry.recorded_run import SECOND

ROOT = Path(__file__).parents[3]


def run(log: Path, *arguments: str) -> int:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--log", type=Path)
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(), [shared])
    options = parser.parse_args(["query", "--log", str(log), *arguments])
    return int(options.run(options))


def rows(capsys: pytest.CaptureFixture[str], log: Path, *arguments: str) -> list[dict[str, object]]:
    assert run(log, *arguments, "--format", "json") == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(autouse=True)
def no_queries_of_my_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


# ------------------------------------------------------------------------------- saved queries


def test_a_saved_query_runs_by_its_name(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, incident, "preemptions-by-minute", "--since", "1h")
    assert {row["cause"] for row in found} <= {"kv_full", "priority"}
    assert found


def test_the_window_narrows_the_answer(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    window = ("--since", "12:02", "--until", "2025-11-29T12:03:00")
    narrow = rows(capsys, incident, "arrivals-by-minute", *window)
    wide = rows(capsys, incident, "arrivals-by-minute")
    assert len(narrow) < len(wide)
    assert narrow[0] == wide[0]


def test_any_statement_may_use_the_window(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT count(*) AS n FROM steps WHERE ts BETWEEN $from_ns AND $until_ns"
    (some,), (every,) = (
        rows(capsys, incident, sql, *window) for window in (("--since", "30s"), ())
    )
    assert 0 < some["n"] < every["n"]  # type: ignore[operator]


def test_a_window_that_chooses_nothing_is_refused(incident: Path) -> None:
    with pytest.raises(QueryRefused, match=r"needs ts BETWEEN \$from_ns AND \$until_ns"):
        run(incident, "FROM steps", "--since", "1h")


def test_parameters_are_given_by_name(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, incident, "engine-starts", "--param", f"engine={SECOND:016x}")
    assert [row["engine"] for row in found] == [f"{SECOND:016x}"]
    sql = "SELECT $name AS name"
    assert rows(capsys, incident, sql, "--param", "name==cmd()") == [{"name": "=cmd()"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["preemption-by-minute"], "did you mean preemptions-by-minute"),
        (["preemptions_by_minute"], "did you mean preemptions-by-minute"),
        (["nothing-like-it"], "there is no saved query nothing-like-it"),
        (["preemptions"], 'is a view, no saved query: write "FROM preemptions LIMIT 10"'),
        (["steps"], "is a table, no saved query"),
        ([], "nothing was asked"),
        (["request-story"], "request-story needs request_id"),
        (["request-story", "--param", "request=x"], "did you mean request_id?"),
        (["lost-tokens", "--param", "from_ns=1"], "from_ns is set by --since and --until"),
        (["lost-tokens", "--param", "engine=xyz"], "engine is 'xyz'"),
        (["lost-tokens", "--param", "engine"], "write name=value"),
        (["lost-tokens", "--param", "engine=1", "--param", "engine=2"], "given twice"),
        (["most-evicted", "--param", "at_least=many"], "at_least is 'many'"),
        (["lost-tokens", "--since", "yesterday"], "--since is 'yesterday'"),
        (["lost-tokens", "--until", "25:61"], "--until is '25:61'"),
        (["lost-tokens", "--since", "1m", "--until", "1h"], "ends before it begins"),
        (["lost-tokens", "--queries", "/no/such"], "--queries /no/such is no directory"),
    ],
)
def test_a_mistake_is_told_with_a_remedy(
    incident: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(QueryRefused) as caught:
        run(incident, *arguments)
    assert message in str(caught.value)


def test_a_users_own_query_is_found_and_stands_before_the_librarys(
    incident: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.sql").write_text("-- Mine.\n--$ n [integer = 7] a number\nSELECT $n AS n;\n")
    (tmp_path / "lost-tokens.sql").write_text("SELECT 'my own' AS a")
    own = ("--queries", str(tmp_path))
    assert rows(capsys, incident, "mine", *own) == [{"n": 7}]
    assert rows(capsys, incident, "mine", *own, "--param", "n=8") == [{"n": 8}]
    assert rows(capsys, incident, "lost-tokens", *own) == [{"a": "my own"}]


def test_the_usual_place_for_ones_own_is_looked_at(
    incident: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "config" / "stepscope" / "queries"
    place.mkdir(parents=True)
    (place / "mine.sql").write_text("SELECT 1 AS one")
    assert rows(capsys, incident, "mine") == [{"one": 1}]


def test_a_users_own_query_may_do_no_more_than_any_other(incident: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.sql").write_text("-- Reads files.\nSELECT * FROM read_text('/etc/passwd')")
    with pytest.raises(QueryRefused, match="read_text is refused"):
        run(incident, "evil", "--queries", str(tmp_path))


def test_the_list_names_everything_with_a_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.sql").write_text("-- Mine \x1b[31m and only mine.\nSELECT 1")
    assert run(tmp_path / "no log", "--list", "--queries", str(tmp_path)) == 0
    out = capsys.readouterr().out
    for name in (*library_queries(), *VIEWS, *BASE_TABLES, *MACRO_DOCS, "mine"):
        assert f"\n  {name}" in out, name
    assert "\x1b" not in out
    assert max(map(len, out.splitlines()[:-1])) <= 100
    assert "When did preemptions happen, and why?" in out


def test_saved_queries_are_shipped() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    assert '"sql/queries/*.sql"' in settings


# --------------------------------------------------------------------------------- formats


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_binary_rows_go_into_a_pipe(incident: Path, form: str) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.telemetry.query.test_command import run;"
        "sys.exit(run(Path(sys.argv[1]), *sys.argv[2:]))"
    )
    command = [sys.executable, "-c", code, str(incident), "FROM engines", "--format", form]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=ROOT)
    source = pa.BufferReader(done.stdout)
    table = pa.ipc.open_stream(source).read_all() if form == "arrow" else pq.read_table(source)
    assert SECOND in table["engine"].to_pylist()


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_binary_rows_are_not_for_a_terminal(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, inner = pty.openpty()
    with os.fdopen(outer, "rb"), os.fdopen(inner, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        with pytest.raises(StepscopeError, match=f"{form} is not for a terminal: add --output"):
            run(tmp_path / "no log is opened", "SELECT 1", "--format", form)


def test_a_cap_says_that_it_cut(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(incident, "slowest-steps", "--max-rows", "3")
    assert capsys.readouterr().err == "only the first 3 rows are shown: raise --max-rows\n"


# --------------------------------------------------------------------------- untrusted text

UGLY = [
    "<script>alert(1)</script>",
    "[red]x[/red]",
    "=cmd()",
    "\x1b[31m",
    "a\nb",
    "\u202egnp",
    "\t=1",
]
ASKED = "SELECT unnest([" + ", ".join(f"$p{n}" for n in range(len(UGLY))) + "]) AS id"
GIVEN = [word for n, text in enumerate(UGLY) for word in ("--param", f"p{n}={text}")]


def test_ugly_ids_do_nothing_to_a_terminal(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(incident, ASKED, *GIVEN)
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert len(out.splitlines()) == len(UGLY) + 2
    assert "[red]x[/red]" in out
    assert "<script>alert(1)</script>" in out


def test_ugly_ids_do_nothing_to_a_spreadsheet(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(incident, ASKED, *GIVEN, "--format", "csv")
    cells = [row[0] for row in csv.reader(io.StringIO(capsys.readouterr().out))][1:]
    assert len(cells) == len(UGLY)
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    assert all(cell.isprintable() for cell in cells)
    assert "'=cmd()" in cells


def test_ugly_names_of_columns_do_nothing_either(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = 'SELECT 1 AS "=cmd()", 2 AS "\x1b[31m"'
    run(incident, sql, "--format", "csv")
    assert next(csv.reader(io.StringIO(capsys.readouterr().out))) == ["'=cmd()", "\\x1b[31m"]
    run(incident, sql)
    assert "\x1b" not in capsys.readouterr().out


def test_ugly_text_in_lists_and_structs_is_neutral_too(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT ['=cmd()', chr(27) || '[31m'] AS a, {'=k': '=v'} AS b"
    run(incident, sql, "--format", "csv")
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert not any(cell.startswith("=") for cell in next(csv.reader([out.splitlines()[1]])))


def test_an_error_with_ugly_text_is_one_that_can_be_shown(incident: Path) -> None:
    with pytest.raises(QueryFailed) as caught:
        run(incident, "SELECT \x1b[31m")
    assert "\x1b" not in str(caught.value)

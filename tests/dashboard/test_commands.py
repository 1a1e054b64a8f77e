"""`stepscope dashboard`: what it prints, where it listens, how it ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import stepscope
from dashboard import commands, theme
from dashboard.colours import BACKGROUND
from diagnose.diagnosis import diagnose
from diagnose.words import engine_hex
from telemetry.store import open_log
from tests.dashboard.logs import ENGINE
from tests.dashboard.serving import dashboard


def test_it_prints_its_address_listens_on_loopback_and_ends_on_sigterm(storm_log: Path) -> None:
    with dashboard(storm_log) as served:
        port = int(served.url.rsplit(":", 1)[1])
        assert served.process.stdout is not None
        assert served.process.stdout.readline().split() == ["dashboard", f"{served.url}/overview"]
        outside = _address_of_this_machine()
        if outside is not None:
            with socket.socket() as probe:
                assert probe.connect_ex((outside, port)) != 0
        assert served.end() == 0


def test_it_ends_while_it_replays_and_leaves_nothing_behind(
    storm_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with dashboard(storm_log) as served:
        assert [path.name.startswith("stepscope-dashboard-") for path in tmp_path.iterdir()] == [
            True
        ]
        assert served.end() == 0
    assert not any(tmp_path.iterdir())


def _address_of_this_machine() -> str | None:
    """Returns an address of this machine beside loopback; None where it has none."""
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return None
    return None if address.startswith("127.") else address


def test_usage_statistics_are_off_and_nothing_is_opened() -> None:
    options = theme.options("127.0.0.1", 8501)
    assert options["browser.gatherUsageStats"] is False
    assert options["server.headless"] is True
    assert options["server.address"] == "127.0.0.1"


def test_both_themes_have_their_ground() -> None:
    options = theme.options("127.0.0.1", 8501)
    assert options["theme.dark.backgroundColor"] == BACKGROUND.dark
    assert options["theme.light.backgroundColor"] == BACKGROUND.light


def test_a_finding_leads_to_the_page_that_explains_it(storm_log: Path) -> None:
    with open_log(storm_log) as log:
        finding = diagnose(log).findings[0]
    found = commands._find(storm_log, finding.id)
    path = f"/findings?finding={finding.id}&engine={engine_hex(ENGINE)}"
    assert commands._path_of(found) == path


def test_an_unknown_finding_lists_those_there_are(
    storm_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["dashboard", "--log", str(storm_log), "--finding", "kvp-none"]
    assert stepscope.main(arguments) == 2
    assert "has no finding 'kvp-none': there are kvp-" in capsys.readouterr().err


def test_an_engine_that_is_none_is_refused(
    storm_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stepscope.main(["dashboard", "--log", str(storm_log), "--engine", "7"]) == 2
    assert "16 hex digits" in capsys.readouterr().err


def test_a_port_out_of_range_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        stepscope.main(["dashboard", "--port", "70000"])
    assert "port is 70000: give one from 1 to 65535" in capsys.readouterr().err


def test_a_taken_port_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert stepscope.main(["dashboard", "--log", str(tmp_path), "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err

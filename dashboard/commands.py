"""`stepscope dashboard`: the log as pages in a browser on this machine; and `report`, as a file."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dashboard.report.command import add_command as add_report

if TYPE_CHECKING:
    from diagnose.finding import Finding

DEFAULT_PORT = 8501
DEFAULT_HOST = "127.0.0.1"


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `dashboard` and `report`."""
    add_report(commands, parents)
    parser = commands.add_parser(
        "dashboard", parents=parents, help="show a log in a browser, live or closed"
    )
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help="default: 8501")
    parser.add_argument(
        "--host", default=DEFAULT_HOST, help="address to bind (default: 127.0.0.1, this machine)"
    )
    parser.add_argument(
        "--login",
        type=_login,
        default="off",
        metavar="off|header:NAME|oidc",
        help="who may look: anybody who reaches the port (default), whom a proxy names in a "
        "header, whom an OIDC provider knows (docs/dashboard.md)",
    )
    parser.add_argument(
        "--public", metavar="HOST", help="name under which a proxy offers it, as browsers call it"
    )
    parser.add_argument("--engine", metavar="HEX", help="engine start to show: its 16 hex digits")
    parser.add_argument("--finding", metavar="ID", help="print the address that explains a finding")
    parser.set_defaults(run=run_dashboard)


def run_dashboard(args: argparse.Namespace) -> int:
    """Serves the dashboard until SIGTERM or Ctrl-C; prints its address first."""
    from streamlit.web import bootstrap

    from dashboard import first_look, vega
    from dashboard.login import VARIABLE
    from dashboard.source import ROOT_VARIABLE
    from dashboard.theme import LOOPBACK, options

    address = _address(args)
    _check_free(args.host, args.port)
    script = Path(__file__).with_name("app.py")
    os.environ[ROOT_VARIABLE] = str(args.log.absolute())
    os.environ[VARIABLE] = args.login
    chosen = options(args.host, args.port, public=args.public)
    bootstrap.load_config_options(chosen)
    print(f"dashboard  {address}\nlog        {args.log}\nCtrl-C ends it", flush=True)
    if args.host not in LOOPBACK and args.login != "oidc":
        print(f"▲ whoever reaches {args.host}:{args.port} can read this log", flush=True)
    with tempfile.TemporaryDirectory(
        prefix="stepscope-dashboard-", ignore_cleanup_errors=True
    ) as scratch:
        tempfile.tempdir = scratch  # what queries spill; it goes with the pages
        vega.trust_charts()
        first_look.start()
        bootstrap.run(str(script), False, [], chosen)
    # Trap: threads that still replay for somebody who has gone would hold the process for as long
    # as they take, or abort it from within DuckDB while Python ends.
    sys.stdout.flush()
    os._exit(0)


def _check_free(host: str, port: int) -> None:
    """Raises ValueError where the address cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ValueError(
            f"cannot listen on {host} port {port}: {error}; choose another --host or --port"
        ) from None


def _address(args: argparse.Namespace) -> str:
    base = f"http://{args.host}:{args.port}"
    if args.finding is not None:
        return base + _path_of(_find(args.log, args.finding))
    if args.engine is not None:
        from dashboard.address import parse_engine

        if parse_engine(args.engine) is None:
            raise ValueError(f"--engine is {args.engine!r}: give its 16 hex digits")
        return f"{base}/overview?{urlencode({'engine': args.engine})}"
    return f"{base}/overview"


def _find(log: Path, finding_id: str) -> Finding:
    from diagnose.diagnosis import diagnose
    from diagnose.user_rules.loading import chosen_rules
    from telemetry.store import open_log

    with open_log(log) as opened:
        rules = chosen_rules(None, log)
        findings = diagnose(opened, rules=rules, effort="none").findings
    for finding in findings:
        if finding.id == finding_id:
            return finding
    known = ", ".join(finding.id for finding in findings) or "none"
    raise ValueError(f"{log} has no finding {finding_id!r}: there are {known}")


def _path_of(finding: Finding) -> str:
    from diagnose.words import engine_hex

    parameters = {"finding": finding.id, "engine": engine_hex(finding.engine)}
    return f"/findings?{urlencode(parameters)}"


def _login(text: str) -> str:
    from dashboard.login import is_login

    if not is_login(text):
        raise argparse.ArgumentTypeError(
            f"log-in is {text!r}: it is off, oidc, or header:NAME (header:X-Forwarded-User)"
        )
    return text


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else 0
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"port is {text}: give one from 1 to 65535")
    return port

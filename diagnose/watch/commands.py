"""`stepscope watch`: only what changes, here and to a webhook."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from diagnose.watch.outlet import Outlet
    from diagnose.watch.webhook import Webhook

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FINE, FOUND, USAGE = 0, 1, 2
LEVELS = ("info", "medium", "high", "critical")
FORMATS = ("generic", "slack", "alertmanager")
DASHBOARD = "http://127.0.0.1:8501"
_ONCE_SECONDS = 30.0


def add_commands(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    """Registers `watch`."""
    parser = commands.add_parser(
        "watch",
        parents=parents,
        help="tell what changes in findings, here and to a webhook",
        description="Prints what the analyst beside a log's collector tells of findings: opened, "
        "explained, updated, cleared, flapping, ended; and engines that come, go, rest and work "
        "again. What somebody acknowledged or silenced is not told.",
        epilog="exit codes: 0 fine, 1 a finding at or above --fail-on, 2 usage",
    )
    parser.add_argument(
        "--level", choices=LEVELS, default="medium", help="mildest that is told (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    parser.add_argument("--ascii", action="store_true", help="no signs beyond ASCII")
    parser.add_argument("--once", action="store_true", help="tell what is open now, and end")
    parser.add_argument(
        "--fail-on",
        choices=LEVELS,
        metavar="LEVEL",
        help="end with exit code 1 as soon as a finding from this level on is told",
    )
    parser.add_argument(
        "--url",
        default=DASHBOARD,
        metavar="URL",
        help="where the dashboard is, for the links in messages (%(default)s)",
    )
    hook = parser.add_argument_group("webhook")
    hook.add_argument("--webhook", metavar="URL", help="post each notice there as well")
    hook.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="sign with the secret in this file, which is its owner's alone: docs/watch.md",
    )
    hook.add_argument(
        "--format",
        choices=FORMATS,
        default="generic",
        help="generic, for Slack's incoming webhooks, or for Alertmanager, whose address is enough",
    )
    parser.set_defaults(run=run_watch)


def run_watch(args: argparse.Namespace) -> int:
    """Watches until Ctrl-C, or what was asked for has come; returns the exit code."""
    from diagnose.finding import Severity
    from diagnose.watch.outlet import JsonLines, Messages, Terminal
    from diagnose.watch.watching import Wishes, watch
    from telemetry.errors import StepscopeError

    webhook, terminal = _webhook(args), Terminal(ascii_only=args.ascii)
    outlets: list[Outlet] = [JsonLines(args.url) if args.json else terminal]
    if webhook is not None:
        outlets.append(Messages(webhook, args.format, args.url))
    if not args.once:
        _say_what_comes(args)
    wishes = Wishes(
        level=Severity[args.level],
        once=args.once,
        fail_on=None if args.fail_on is None else Severity[args.fail_on],
    )
    watched = watch(args.log, outlets, wishes, _stopped_by_signals())
    if args.once and not args.json and not terminal.num_told:
        terminal.say_nothing_is_open(watched.num_ended)
    if webhook is not None and not webhook.close(_ONCE_SECONDS if args.once else 5.0):
        raise StepscopeError(f"{webhook.name} has not taken every message")
    return FOUND if watched.is_met else FINE


def _webhook(args: argparse.Namespace) -> Webhook | None:
    from diagnose.watch.alerts import alerts_url
    from diagnose.watch.webhook import Webhook, check_url, read_secret
    from telemetry.errors import StepscopeError

    if args.webhook is None:
        if args.secret_file is not None:
            raise StepscopeError("--secret-file signs what goes to --webhook: name that too")
        return None
    check_url(args.webhook)
    url = alerts_url(args.webhook) if args.format == "alertmanager" else args.webhook
    secret = None if args.secret_file is None else read_secret(args.secret_file)
    return Webhook(
        url, secret, tell=lambda text: print(f"stepscope watch: {text}", file=sys.stderr)
    )


def _say_what_comes(args: argparse.Namespace) -> None:
    """Says what will be seen, and where nothing will be, why.

    Raises:
        StepscopeError: The log is closed: nothing changes in it any more.
    """
    from telemetry.errors import StepscopeError
    from telemetry.exporters.status import read_status
    from telemetry.store.analyst_status import has_analyst
    from telemetry.store.presence import find_collector, is_collected
    from telemetry.store.token import remote_address

    if remote_address(args.log) is not None:
        return
    if not is_collected(args.log):
        raise StepscopeError(
            f"nobody collects {args.log}, so nothing changes there: `stepscope findings` tells "
            "what was open when the record ended, `stepscope diagnose` what is wrong"
        )
    if not has_analyst(args.log):
        print(
            "stepscope watch: no analyst runs beside this collector yet: findings are told once "
            "one does (`stepscope doctor`)",
            file=sys.stderr,
        )
    if not args.json:
        notice = find_collector(args.log)
        status = None if notice is None else read_status(args.log, notice.pid)
        page = "" if status is None or not status.metrics_url else f" {status.metrics_url}"
        print(f"changes of findings only; Ctrl-C ends.{page}", flush=True)


def _stopped_by_signals() -> threading.Event:
    """Returns an event that Ctrl-C and SIGTERM set: what waits is still delivered."""
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    return stop

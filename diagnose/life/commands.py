"""`stepscope findings`, `ack`, `silence`, `unsilence`: what stands, and what people said of it."""

from __future__ import annotations

import argparse
import getpass
import sys
import time
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from diagnose.life.sayings import Saying, Target
    from diagnose.life.state import FindingState
    from diagnose.reading import QueryLog

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Parents: TypeAlias = list[argparse.ArgumentParser]

FINE, USAGE = 0, 2


def add_commands(commands: Commands, parents: Parents) -> None:
    """Registers the four."""
    _add_findings(commands, parents)
    ack = commands.add_parser(
        "ack",
        parents=parents,
        help="say that a finding is known: nobody is told of it until it opens again",
    )
    ack.add_argument("finding", metavar="ID", help="the finding, as `stepscope findings` shows it")
    _add_author(ack)
    ack.set_defaults(run=_ack)
    silence = commands.add_parser(
        "silence",
        parents=parents,
        help="tell nobody of a finding, a rule or an engine for a while",
        description="Tells nobody for a while: `watch` and its webhooks stay quiet. What is found "
        "is found, stored and counted as before.",
    )
    _add_target(silence)
    silence.add_argument(
        "--for",
        dest="duration",
        required=True,
        metavar="TIME",
        help="how long: 30m, 2h, 3d; at most 30d",
    )
    _add_author(silence)
    silence.set_defaults(run=_silence)
    unsilence = commands.add_parser("unsilence", parents=parents, help="end a silence")
    _add_target(unsilence)
    _add_author(unsilence)
    unsilence.set_defaults(run=_unsilence)


def _add_findings(commands: Commands, parents: Parents) -> None:
    parser = commands.add_parser(
        "findings",
        parents=parents,
        help="findings that are stored: open ones, or with --all those that are over too",
        description="Prints the findings that the analyst beside the collector has stored, with "
        "their life: opened, explained, updated, cleared, ended, flapping, acknowledged, silenced.",
    )
    parser.add_argument("finding", nargs="?", metavar="ID", help="one finding and its whole story")
    parser.add_argument("--all", action="store_true", help="those that are over too")
    parser.add_argument("--json", action="store_true", help="JSON: docs/findings.schema.json")
    parser.add_argument("--ascii", action="store_true", help="no signs beyond ASCII")
    parser.set_defaults(run=_findings)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("finding", nargs="?", metavar="ID", help="a finding: its rule and engine")
    parser.add_argument("--rule", metavar="RULE", help="a rule, of any engine or of --engine")
    parser.add_argument("--engine", metavar="HEX", help="an engine: its 16 hex digits")


def _add_author(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--author", metavar="NAME", help="who says so (default: the user's name)")
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for whoever comes next")


def _findings(args: argparse.Namespace) -> int:
    from diagnose.life.listing import json_listing, write_listing, write_story
    from diagnose.life.state import is_closed, read_changes, read_silences, read_states
    from diagnose.text.lines import print_report
    from telemetry.store import open_log

    now = time.time_ns()
    with open_log(args.log) as log:
        has_ended = is_closed(log)
        states, silences = read_states(log, is_closed=has_ended), read_silences(log, now)
        if args.finding is not None:
            states = [_find(states, args.finding)]
            changes = [each for each in read_changes(log) if each.finding == args.finding]
    standing = ("open", "flapping", "ended") if has_ended else ("open", "flapping")
    is_whole = args.all or args.finding is not None
    shown = [state for state in states if is_whole or state.status in standing]
    if args.json:
        story = None if args.finding is None else changes
        print(json_listing(shown, silences, now, story))
        return FINE
    if args.finding is None:
        hidden = [state for state in states if state not in shown]
        report = write_listing(shown, silences, now, hidden=hidden)
    else:
        report = write_story(states[0], changes, now)
    print_report(report, sys.stdout, ascii_only=args.ascii)
    return FINE


def _ack(args: argparse.Namespace) -> int:
    state, saying = _known(args.log, args.finding), _saying(args)
    _post(args.log, saying.acknowledge(state))
    _say(f"{state.finding} {state.rule}: acknowledged by {saying.author} until it opens again")
    return FINE


def _silence(args: argparse.Namespace) -> int:
    from diagnose.window import parse_duration
    from diagnose.words import iso

    target, saying = _target(args), _saying(args)
    row = saying.silence(target, parse_duration(args.duration, name="--for"))
    _post(args.log, row)
    _say(f"{target}: silenced by {saying.author} until {iso(row['until_ts'])[:19]}Z")
    return FINE


def _unsilence(args: argparse.Namespace) -> int:
    from diagnose.life.state import read_silences
    from telemetry.store import open_log

    target, saying = _target(args), _saying(args)
    with open_log(args.log) as log:
        known = [(each.rule, each.engine) for each in read_silences(log, saying.ts)]
    if (target.rule, target.engine) not in known:
        raise ValueError(f"{target} is not silenced: `stepscope findings` lists the silences")
    _post(args.log, saying.unsilence(target))
    _say(f"{target}: told again")
    return FINE


def _say(text: str) -> None:
    """Prints a line in which nothing from outside moves the cursor."""
    from diagnose.words import without_controls

    print(without_controls(text))


def _target(args: argparse.Namespace) -> Target:
    """Returns what is meant by ID, or by --rule and --engine.

    Raises:
        ValueError: Both are given, or neither, or there is no such rule or finding.
    """
    from diagnose.life.sayings import Target
    from telemetry.engine_id import parse_engine

    if args.finding is not None:
        if args.rule is not None or args.engine is not None:
            raise ValueError("an ID names rule and engine already: leave out --rule and --engine")
        state = _known(args.log, args.finding)
        return Target(state.rule, state.engine)
    engine = None if args.engine is None else parse_engine(args.engine)
    return Target(args.rule, engine)


def _known(log: Path, finding: str) -> FindingState:
    from telemetry.store import open_log

    with open_log(log) as opened:
        return _find_in(opened, finding)


def _find_in(log: QueryLog, finding: str) -> FindingState:
    from diagnose.life.state import read_states

    return _find(read_states(log), finding)


def _find(states: list[FindingState], finding: str) -> FindingState:
    for state in states:
        if state.finding == finding:
            return state
    known = ", ".join(state.finding for state in states[:10]) or "none"
    raise ValueError(f"no finding {finding!r} is stored in this log: there are {known}")


def _saying(args: argparse.Namespace) -> Saying:
    from diagnose.life.sayings import Saying

    author = args.author or getpass.getuser()
    return Saying(author=author, note=args.note, ts=time.time_ns())


def _post(log: Path, row: dict[str, Any]) -> None:
    from telemetry.store.posting import post_findings

    post_findings(log, [row])

"""`stepscope rules`: which rules there are, their pages, their tests, and what is made of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnose.rule import Rule
    from diagnose.user_rules.definition import UserRule

FINE, FAILED, USAGE = 0, 1, 2


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `rules` and what it does; `parents` bring `--log`."""
    parser = commands.add_parser(
        "rules",
        help="list and show the rules, test your own, export alerts, runbooks and a dashboard",
    )
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="list, show, test or export"
    )
    listed = actions.add_parser("list", parents=parents, help="name all rules")
    add_rules_option(listed)
    listed.set_defaults(run=run_list)
    shown = actions.add_parser("show", parents=parents, help="print the page of a rule")
    shown.add_argument("id", metavar="ID", help="the rule")
    add_rules_option(shown)
    shown.set_defaults(run=run_show)
    tested = actions.add_parser("test", help="run the tests in the files of your own rules")
    tested.add_argument("directory", type=Path, metavar="DIR", help="where the files lie")
    tested.set_defaults(run=run_test)
    _add_export(actions, parents)


def add_rules_option(parser: argparse.ArgumentParser) -> None:
    """Registers `--rules`, which a command gives to `chosen_rules`."""
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="DIR",
        help="rules of your own (default: $STEPSCOPE_RULES, else DIR/rules beside the log)",
    )


def _add_export(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    exported = actions.add_parser(
        "export",
        parents=parents,
        help="write alert rules and runbooks, a Grafana dashboard, and the pages of your own rules",
    )
    exported.add_argument("directory", type=Path, metavar="DIR", help="where to write")
    exported.add_argument(
        "--max-num-seqs",
        type=int,
        metavar="N",
        help="the engines' setting, which no metric tells and two alerts compare with",
    )
    exported.add_argument(
        "--runbooks",
        metavar="URL",
        help="what stands before the name of a runbook in an alert (default: a path)",
    )
    add_rules_option(exported)
    exported.set_defaults(run=run_export)


def run_list(args: argparse.Namespace) -> int:
    """Prints each rule with where it comes from; returns the exit code."""
    from diagnose.user_rules.loading import with_own

    own = {rule.id: rule for rule in _own(args)}
    for rule in with_own(tuple(own.values())):
        origin = str(own[rule.id].path) if rule.id in own else "Stepscope"
        print(f"{rule.id:32} {_summary(rule)}  ({origin}, version {rule.version})")
    return FINE


def run_show(args: argparse.Namespace) -> int:
    """Prints the page of a rule; returns the exit code."""
    from diagnose.user_rules.loading import with_own
    from diagnose.user_rules.pages import any_page

    own = _own(args)
    rules = {rule.id: rule for rule in with_own(own)}
    if args.id not in rules:
        known = ", ".join(sorted(rules))
        print(f"stepscope rules: no rule is called {args.id!r}: there are {known}", file=sys.stderr)
        return USAGE
    print(any_page(rules[args.id], own), end="")
    return FINE


def run_test(args: argparse.Namespace) -> int:
    """Runs the tests of a directory's rules; returns 1 where one failed."""
    from diagnose.user_rules.loading import load_rules, rules_directory
    from diagnose.user_rules.trial import try_rules
    from diagnose.words import plural

    rules = load_rules(rules_directory(args.directory, None))
    if not rules:
        print(f"stepscope rules: {args.directory} holds no rule (*.yaml)", file=sys.stderr)
        return USAGE
    results = try_rules(rules)
    for result in results:
        sign = "ok  " if result.problem is None else "FAIL"
        print(f"{sign} {result.rule.id}: {result.name}")
        if result.problem is not None:
            print(f"     {result.rule.path}:{result.line}: {result.problem}")
    failed = sum(result.problem is not None for result in results)
    counted = f"{plural(len(rules), 'rule')}, {plural(len(results), 'test')}"
    print(f"{counted}, {failed:,} failed")
    return FAILED if failed else FINE


def run_export(args: argparse.Namespace) -> int:
    """Writes what is generated from the rules; returns the exit code."""
    from diagnose.alerts.export import generated, write
    from diagnose.user_rules.pages import own_page

    if args.max_num_seqs is not None and args.max_num_seqs < 1:
        message = f"--max-num-seqs is {args.max_num_seqs}: it must be 1 or more"
        print(f"stepscope rules: {message}", file=sys.stderr)
        return USAGE
    beside = str(args.directory / "prometheus" / "runbooks")
    runbooks = beside if args.runbooks is None else args.runbooks.rstrip("/")
    files = generated(runbooks=runbooks, max_num_seqs=args.max_num_seqs)
    files |= {f"rules/{rule.id}.md": own_page(rule) for rule in _own(args)}
    for path in write(args.directory, files):
        print(path)
    return FINE


def _own(args: argparse.Namespace) -> tuple[UserRule, ...]:
    from diagnose.user_rules.loading import load_rules, rules_directory

    return load_rules(rules_directory(args.rules, args.log))


def _summary(rule: Rule) -> str:
    return " ".join(rule.sections()[""].split(": ", 1)[1].split())

"""Finds the rules of a directory, and puts them among ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from diagnose.finding import NO_FAULT
from diagnose.rule import Rule
from diagnose.rules import RULES
from diagnose.user_rules.deciding import rule_of
from diagnose.user_rules.definition import UserRule
from diagnose.user_rules.document import UserRuleError, fail
from diagnose.user_rules.reading import read_rule

MAX_FILES = 200
VARIABLE = "STEPSCOPE_RULES"
SUFFIXES = (".yaml", ".yml")


def rules_directory(
    chosen: Path | None, log: Path | None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """Returns where rules lie: as chosen, as the environment says, or beside the log.

    `None` where neither was said and the log has none.

    Raises:
        UserRuleError: the directory that was named does not exist.
    """
    named = chosen or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    if named is not None:
        if not named.is_dir():
            said = "--rules" if chosen else VARIABLE
            raise UserRuleError(f"{said} is {named}: there is no such directory")
        return named
    beside = None if log is None else log / "rules"
    return beside if beside is not None and beside.is_dir() else None


def load_rules(directory: Path | None) -> tuple[UserRule, ...]:
    """Returns the rules of a directory, by the names of their files; none without one.

    Raises:
        UserRuleError: a file is no rule, or two have the same id.
    """
    files = [] if directory is None else _files(directory)
    found: dict[str, UserRule] = {}
    for file in files:
        rule = read_rule(file)
        if rule.id in found:
            other = found[rule.id].path
            fail(file, None, f"id: {rule.id} is the id of {other} too: choose another")
        found[rule.id] = rule
    for rule in found.values():
        for other_id in rule.silenced_by:
            if (other_id not in RULES and other_id not in found) or other_id == rule.id:
                fail(rule.path, None, f"silenced_by: {other_id!r} is no other rule")
    return tuple(found.values())


def _files(directory: Path) -> list[Path]:
    files = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    if len(files) > MAX_FILES:
        raise UserRuleError(
            f"{directory} has {len(files):,} rules and {MAX_FILES} is the most: "
            "take out those that nobody needs"
        )
    for file in files:
        if not file.is_file():
            fail(file, None, "is no plain file: take it out")
    return files


def with_own(own: Sequence[UserRule]) -> tuple[Rule, ...]:
    """Returns all rules in order of evaluation; one's own come before the verdict of no fault."""
    rules = [rule for rule in RULES.values() if rule.id != NO_FAULT]
    return (*rules, *(rule_of(each) for each in own), RULES[NO_FAULT])


class WatchedRules:
    """All rules that a log is judged by, for who judges it again and again.

    Files are read anew when one of them has changed. While one is no rule, ours are used alone, and
    `problem` says why.
    """

    def __init__(self, log: Path) -> None:
        self.problem: str | None = None
        self._log = log
        self._stamp: tuple[object, ...] | None = None
        self._rules = with_own(())

    def read(self) -> tuple[Rule, ...]:
        """Returns the rules as the files are now."""
        try:
            directory = rules_directory(None, self._log)
            stamp = () if directory is None else _stamp_of(directory)
            if stamp != self._stamp:
                self._rules, self.problem = with_own(load_rules(directory)), None
        except (UserRuleError, OSError) as error:
            self._rules, self.problem, stamp = with_own(()), str(error), None
        self._stamp = stamp
        return self._rules


def _stamp_of(directory: Path) -> tuple[object, ...]:
    """Returns what changes when a file of a directory does."""
    found = ((path, path.stat()) for path in _files(directory))
    return tuple((path, stat.st_mtime_ns, stat.st_size, stat.st_ino) for path, stat in found)


def chosen_rules(chosen: Path | None, log: Path | None) -> tuple[Rule, ...]:
    """Returns all rules that a log is judged by.

    Raises:
        UserRuleError: a directory was named that does not exist, or a file in it is no rule.
    """
    return with_own(load_rules(rules_directory(chosen, log)))

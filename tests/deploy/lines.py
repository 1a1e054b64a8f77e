"""Command lines out of the files in deploy/, as they would be run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BINARY = "/opt/stepscope/bin/stepscope"
_TYPED = re.compile(r"(?:^|[ /`])stepscope ((?!stepscope )[a-z]+ .*?)(?:`|$)", re.MULTILINE)
UNITS = sorted(DEPLOY.glob("*.service"))


def text(name: str) -> str:
    return (DEPLOY / name).read_text()


def load(name: str) -> Any:
    return yaml.safe_load(text(name))


def instructions(name: str = "Dockerfile") -> list[tuple[str, str]]:
    """Returns the Dockerfile's instructions: word and rest, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", text(name))
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def instruction(word: str) -> str:
    """Returns what follows the last instruction of that word."""
    return [rest for found, rest in instructions() if found == word][-1]


def unit_values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def pod() -> dict[str, Any]:
    found: dict[str, Any] = load("kubernetes.yaml")["spec"]["template"]["spec"]
    return found


def containers() -> dict[str, dict[str, Any]]:
    """Returns the pod's containers by name, the sidecar among them."""
    return {each["name"]: each for each in (*pod()["initContainers"], *pod()["containers"])}


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(instruction("ENV")))


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Yields where each command line of ours stands, and its words after `stepscope`."""
    for unit in UNITS:
        for line in unit_values(unit, "ExecStart"):
            words = [word for word in shlex.split(line) if not word.startswith("$")]
            assert words[0] == BINARY
            yield unit.name, words[1:]
    assert json.loads(instruction("ENTRYPOINT")) == ["stepscope"]
    yield "Dockerfile CMD", json.loads(instruction("CMD"))
    yield "Dockerfile HEALTHCHECK", json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])[1:]
    for name, service in load("compose.yaml")["services"].items():
        yield from ((f"compose {name}", words) for words in _of_service(service))
    for name, container in containers().items():
        yield f"kubernetes {name}", container["args"]
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if "exec" in container.get(kind, {}):
                words = container[kind]["exec"]["command"]
                assert words[0] == "stepscope"
                yield f"kubernetes {name} {kind}", words[1:]
    for line in _TYPED.findall(text("README.md")):
        yield "README", shlex.split(line)


def _of_service(service: dict[str, Any]) -> Iterator[list[str]]:
    if "command" in service:
        yield service["command"]
    test = service.get("healthcheck", {}).get("test", [])
    if "stepscope" in test:
        yield test[2:]

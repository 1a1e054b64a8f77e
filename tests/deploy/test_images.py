"""What the Dockerfile names is there, and what it needs it names."""

from __future__ import annotations

import json
import tomllib

import pytest

from tests.deploy.lines import DEPLOY, ROOT, instruction, instructions, load, text

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COPIED = [
    source
    for word, rest in instructions()
    if word == "COPY" and not rest.startswith("--from")
    for source in rest.split()[:-1]
]


@pytest.mark.parametrize("source", COPIED)
def test_what_is_copied_exists_and_reaches_the_builder(source: str) -> None:
    assert (ROOT / source).exists()
    assert f"!{source}" in text("Dockerfile.dockerignore").splitlines()


def test_every_package_of_the_project_is_copied() -> None:
    setuptools = PROJECT["tool"]["setuptools"]
    packages = {pattern.rstrip("*") for pattern in setuptools["packages"]["find"]["include"]}
    modules = {f"{module}.py" for module in setuptools["py-modules"]}
    own_files = {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert {*packages, *modules, *own_files, "pyproject.toml"} <= set(COPIED)


def test_every_extra_exists() -> None:
    defaults = [r for w, r in instructions() if w == "ARG" and r.startswith("EXTRAS=")]
    builds = [s["build"] for s in load("compose.yaml")["services"].values() if "build" in s]
    chosen = [build["args"]["EXTRAS"] for build in builds if "args" in build]
    extras = {default.partition("=")[2] for default in defaults} | set(chosen)
    assert extras == {"collect", "engine"}
    assert extras <= set(PROJECT["project"]["optional-dependencies"])


def test_compose_builds_from_the_checkout_with_this_dockerfile() -> None:
    for service in load("compose.yaml")["services"].values():
        if "build" in service:
            context = (DEPLOY / service["build"]["context"]).resolve()
            assert context == ROOT
            assert (context / service["build"]["dockerfile"]).is_file()


def test_it_runs_as_somebody_with_little_to_say() -> None:
    assert instruction("USER") == "10001:10001"


def test_the_port_that_is_exposed_is_the_pages() -> None:
    assert json.loads(instruction("CMD"))[-2:] == ["--metrics-port", instruction("EXPOSE")]


def test_the_python_is_one_that_the_project_takes() -> None:
    (python,) = (rest.partition("=")[2] for word, rest in instructions() if "PYTHON=" in rest)
    least = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert tuple(map(int, python.split("."))) >= tuple(map(int, least.split(".")))

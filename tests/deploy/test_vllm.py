"""A vLLM takes the engine's place beside the collector, and brings the plug-in along."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from stepscope import build_parser
from tests.deploy.lines import containers, image_environment, instructions, load
from tests.deploy.test_images import PROJECT
from tests.deploy.test_together import PLACES

DOCKERFILE = "Dockerfile.vllm"


def patched_engine() -> dict[str, Any]:
    """Returns what the patch says of the engine's container."""
    (engine,) = load("kubernetes-vllm.yaml")["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = engine
    return found


def rest_of(word: str) -> list[str]:
    return [rest for found, rest in instructions(DOCKERFILE) if found == word]


def test_the_image_is_built_of_the_whole_project() -> None:
    copied = {source for rest in rest_of("COPY") for source in rest.split()[:-1]}
    setuptools = PROJECT["tool"]["setuptools"]
    packages = {pattern.rstrip("*") for pattern in setuptools["packages"]["find"]["include"]}
    modules = {f"{module}.py" for module in setuptools["py-modules"]}
    assert {*packages, *modules, "pyproject.toml", "README.md", "LICENSE"} == copied


def test_the_image_changes_nothing_of_vllms() -> None:
    (installed,) = (rest for rest in rest_of("RUN") if "pip install" in rest)
    assert "--no-deps" in installed
    assert "[" not in installed


def test_vllm_and_collector_share_user_and_places() -> None:
    environment = dict(pair.split("=", 1) for pair in shlex.split(rest_of("ENV")[-1]))
    assert environment == PLACES
    assert PLACES.items() <= image_environment().items()
    assert rest_of("USER")[-1] == "10001:10001"


def test_the_patch_is_of_a_container_that_is_there() -> None:
    engine = patched_engine()
    assert engine["name"] in containers()
    assert "env" not in engine  # the pod's places stay
    mounted = {mount["mountPath"] for mount in engine["volumeMounts"]}
    assert PLACES["STEPSCOPE_RING_DIR"] not in mounted


PROBES = [
    patched_engine()["livenessProbe"]["exec"]["command"],
    load("compose.vllm.yaml")["services"]["engine"]["healthcheck"]["test"][1:],
]


@pytest.mark.parametrize("words", PROBES, ids=["kubernetes", "compose"])
def test_its_health_is_judged_by_its_progress(words: list[str]) -> None:
    assert words[0] == "stepscope"
    assert build_parser().parse_args(words[1:]).probe == "engine"


def test_compose_puts_vllm_in_the_engines_place() -> None:
    (name,) = load("compose.vllm.yaml")["services"]
    base = load("compose.yaml")["services"][name]
    assert f"rings:{PLACES['STEPSCOPE_RING_DIR']}" in base["volumes"]
    build = load("compose.vllm.yaml")["services"][name]["build"]
    assert build["dockerfile"] == f"deploy/{DOCKERFILE}"


@pytest.mark.parametrize(
    "words",
    [load("compose.vllm.yaml")["services"]["engine"]["command"], patched_engine()["args"]],
    ids=["compose", "kubernetes"],
)
def test_the_model_is_vllms_own_argument(words: list[str]) -> None:
    model, *flags = words
    assert not model.startswith("-")
    assert flags == ["--host", "0.0.0.0"]

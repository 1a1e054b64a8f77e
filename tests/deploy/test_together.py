"""Engine and collector meet: one user, one ring directory in memory, one path of the log."""

from __future__ import annotations

from typing import Any

import pytest

from engine.server.app import build_app
from engine.server.settings import ServerSettings
from stepscope import build_parser
from tests.deploy.lines import UNITS, containers, image_environment, load, pod, unit_values

RINGS, LOG = "STEPSCOPE_RING_DIR", "STEPSCOPE_LOG"
PLACES = {RINGS: "/run/stepscope", LOG: "/var/lib/stepscope"}
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}


def volumes() -> dict[str, Any]:
    return {volume["name"]: volume for volume in pod()["volumes"]}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_share_user_and_places(unit: Any) -> None:
    environment = dict(pair.split("=", 1) for pair in unit_values(unit, "Environment"))
    assert PLACES.items() <= environment.items()
    assert unit_values(unit, "User") == ["stepscope"]


def test_systemd_keeps_the_rings_when_the_collector_restarts() -> None:
    unit = next(unit for unit in UNITS if "collector" in unit.name)
    assert unit_values(unit, "RuntimeDirectory") == ["stepscope"]
    assert unit_values(unit, "RuntimeDirectoryPreserve") == ["yes"]


def test_the_image_has_the_places() -> None:
    assert PLACES.items() <= image_environment().items()


@pytest.mark.parametrize("name", ["engine", "collector"])
def test_compose_mounts_the_rings_in_both(name: str) -> None:
    compose = load("compose.yaml")
    assert f"rings:{PLACES[RINGS]}" in compose["services"][name]["volumes"]
    assert compose["volumes"]["rings"]["driver_opts"]["type"] == "tmpfs"


@pytest.mark.parametrize("name", ["engine", "collector"])
def test_the_pod_mounts_the_rings_in_both(name: str) -> None:
    container = containers()[name]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert PLACES.items() <= environment.items()
    assert mounts(container)["rings"] == PLACES[RINGS]
    assert volumes()["rings"]["emptyDir"]["medium"] == "Memory"


def test_the_pods_log_is_the_collectors() -> None:
    assert mounts(containers()["collector"])["log"] == PLACES[LOG]
    assert "log" not in mounts(containers()["engine"])


def test_every_mount_of_the_pod_has_its_volume() -> None:
    mounted = {name for container in containers().values() for name in mounts(container)}
    assert mounted == set(volumes())


def test_the_pods_collector_is_a_sidecar() -> None:
    (sidecar,) = pod()["initContainers"]
    assert sidecar["restartPolicy"] == "Always"


def test_every_probe_over_http_asks_a_page_that_the_engine_has() -> None:
    engine = containers()["engine"]
    asked = {kind: engine[kind]["httpGet"]["path"] for kind in PROBES}
    app = build_app(None, ServerSettings(host="127.0.0.1", port=0))  # type: ignore[arg-type]
    assert asked["livenessProbe"] == "/live"
    assert set(asked.values()) <= {getattr(route, "path", None) for route in app.routes}


def test_the_ports_are_those_that_are_listened_at() -> None:
    for name, of_command in (("engine", "port"), ("collector", "metrics_port")):
        container = containers()[name]
        options = build_parser().parse_args(container["args"])
        assert [port["containerPort"] for port in container["ports"]] == [
            getattr(options, of_command)
        ]


def test_prometheus_scrapes_the_services_of_the_compose_file() -> None:
    services = load("compose.yaml")["services"]
    ports = {}
    for name, of_command in (("engine", "port"), ("collector", "metrics_port")):
        options = build_parser().parse_args(services[name]["command"])
        ports[name] = getattr(options, of_command)
    targets = [
        target
        for job in load("prometheus.yml")["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    ]
    assert targets == [f"{name}:{port}" for name, port in ports.items()]

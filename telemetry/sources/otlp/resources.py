"""Whose spans they are: the engine behind an OTLP resource.

One vLLM is several processes (API servers, engine cores, workers), each of which exports spans of
its own. They share what the operator sets in the environment, and differ in what the SDK draws at
random in each: a `service.instance.id` of UUID version 4. So an engine is told by its service's
name and by the instance id, pod or host that somebody chose; a drawn id tells nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from telemetry.exporters.attributes import bounded
from telemetry.records import EngineRow
from telemetry.sources.identity import engine_number

UNNAMED = "unknown_service"
_DRAWN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
_PLACES = ("k8s.pod.name", "host.name")
_TOLD = ("service.name", "service.namespace", "service.version")
"""What is kept of a resource, beside where it is; a bundle passes these on."""


def service_of(resource: Mapping[str, Any]) -> str:
    """Returns the name of the service."""
    return _text(resource, "service.name") or UNNAMED


def engine_of(resource: Mapping[str, Any]) -> int:
    """Returns the number of the engine that a resource is part of."""
    return engine_number(
        "otlp",
        _text(resource, "service.namespace"),
        service_of(resource),
        _chosen_instance(resource) or _place(resource),
    )


def is_nameless(resource: Mapping[str, Any]) -> bool:
    """Returns whether nothing in a resource could tell two engines of one service apart."""
    return not (_chosen_instance(resource) or _place(resource))


def describe(resource: Mapping[str, Any], started_ts: int) -> EngineRow:
    """Returns what a resource says of its engine, the same for all of the engine's processes."""
    told = {name: _text(resource, name) for name in _TOLD}
    return EngineRow(
        started_ts=started_ts,
        source="vllm",
        host=_place(resource) or _chosen_instance(resource) or None,
        settings=json.dumps({name: text for name, text in told.items() if text}, sort_keys=True),
    )


def _place(resource: Mapping[str, Any]) -> str:
    """Returns the pod, or else the host, that a resource names."""
    return next(filter(None, (_text(resource, name) for name in _PLACES)), "")


def _chosen_instance(resource: Mapping[str, Any]) -> str:
    instance = _text(resource, "service.instance.id")
    return "" if _DRAWN.fullmatch(instance) else instance


def _text(resource: Mapping[str, Any], name: str) -> str:
    value = resource.get(name)
    return bounded(value) if isinstance(value, str) else ""

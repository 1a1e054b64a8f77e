"""What a soaked engine is asked for: a table of features, each with the flags that it needs.

A request takes one feature and a prompt; half of the requests are chats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

Body = dict[str, Any]

ADAPTERS: Mapping[str, Mapping[str, Any]] = {
    "first": {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]},
    "second": {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
    "third": {"r": 16, "lora_alpha": 8, "target_modules": ["o_proj", "gate_proj"]},
}
"""Names of LoRA adapters, and how they are made."""

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Something an engine can do.

    `fields` returns what a request for it has beside its prompt; None where it takes no request of
    its own. `flags` are the engine's; `weight` is how often it is asked for.
    """

    name: str
    fields: Callable[[Random, bool], Body] | None
    flags: tuple[str, ...] = ()
    weight: int = 1


def _logprobs(random: Random, is_chat: bool) -> Body:
    number = random.randint(0, 5)
    return {"logprobs": True, "top_logprobs": number} if is_chat else {"logprobs": number}


def _structured(random: Random, is_chat: bool) -> Body:
    """A schema as OpenAI spells it, of which there are many; or one of vLLM's kinds."""
    schema = json.loads(json.dumps(SCHEMA))
    schema["properties"]["name"]["maxLength"] = random.randint(1, 40)
    as_format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return random.choice(
        [
            {"response_format": as_format},
            {"structured_outputs": {"regex": f"[a-f]{{{random.randint(2, 30)}}}"}},
            {"structured_outputs": {"choice": ["yes", "no", f"perhaps {random.randint(0, 99)}"]}},
        ]
    )


def features(folder: Path) -> tuple[Feature, ...]:
    """Returns all features; `folder` is for the adapters, which `make_adapters` writes."""
    modules = tuple(f"{name}={folder / name}" for name in ADAPTERS)
    connector = {
        "kv_connector": "HostMemoryConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": 4 << 20,
            "load_timeout_seconds": 2.0,
            "ack_timeout_seconds": 2.0,
            "lease_seconds": 2.0,
        },
    }
    drafts = {"method": "ngram", "num_speculative_tokens": 3}
    return (
        Feature(name="greedy", fields=lambda random, is_chat: {"temperature": 0}, weight=3),
        Feature(
            name="sampled",
            fields=lambda random, is_chat: {
                "temperature": 0.8,
                "top_p": 0.9,
                "seed": random.getrandbits(32),
            },
        ),
        Feature(
            name="penalties",
            fields=lambda random, is_chat: {
                "presence_penalty": 0.5,
                "frequency_penalty": 0.3,
                "repetition_penalty": 1.1,
                "min_p": 0.02,
                "logit_bias": {str(random.randrange(256)): -5.0},
            },
        ),
        Feature(name="logprobs", fields=_logprobs),
        Feature(name="n", fields=lambda random, is_chat: {"n": random.randint(2, 4)}),
        Feature(
            name="stop",
            fields=lambda random, is_chat: {"stop": [chr(random.randint(97, 122)), "zz"]},
        ),
        Feature(name="structured", fields=_structured),
        Feature(
            name="adapters",
            fields=lambda random, is_chat: {"model": random.choice(list(ADAPTERS))},
            flags=("--enable-lora", "--max-loras", "2", "--lora-modules", *modules),
            weight=2,
        ),
        Feature(
            name="priority",
            fields=lambda random, is_chat: {"priority": random.randint(-2, 2)},
            flags=("--scheduling-policy", "priority"),
        ),
        Feature(
            name="speculation", fields=None, flags=("--speculative-config", json.dumps(drafts))
        ),
        Feature(
            name="connector", fields=None, flags=("--kv-transfer-config", json.dumps(connector))
        ),
        Feature(
            name="faults",
            fields=None,
            flags=(
                *("--inject", "load=delay:0.05,p=0.1", "--inject", "load=fail_half:p=0.05"),
                *("--inject", "load=stall:p=0.01", "--inject", "save=fail:p=0.05"),
                *("--inject", "ack=lose:p=0.01"),
            ),
        ),
    )


def make_adapters(folder: Path) -> None:
    """Writes the adapters for the tiny Llama."""
    from transformers import AutoModelForCausalLM

    from engine.runner.quiet_loading import quiet_loading
    from engine.runner.tiny_llama import tiny_llama
    from tests.engine.lora.builders import save_adapter

    with quiet_loading():
        base = AutoModelForCausalLM.from_pretrained(tiny_llama())
        for seed, (name, options) in enumerate(ADAPTERS.items()):
            save_adapter(base, folder / name, seed, **options)


def make_request(random: Random, feature: Feature) -> tuple[str, Body]:
    """Returns the path and the body of a request for a feature; a third share their beginning."""
    assert feature.fields is not None
    is_chat = random.random() < 0.5
    shared = "What has been said before, word for word. " * 3 if random.random() < 0.33 else ""
    text = shared + "".join(chr(random.randint(97, 122)) for _ in range(random.randint(4, 220)))
    body: Body = {
        "max_tokens": random.randint(4, 120),
        "ignore_eos": feature.name not in ("structured", "stop"),
        "stream": random.random() < 0.6,
        **feature.fields(random, is_chat),
    }
    if is_chat:
        return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": text}]}
    return "/v1/completions", body | {"prompt": text}


def make_malformed_request(random: Random) -> tuple[str, Body]:
    """Returns a request that has to be refused, and leave nothing behind."""
    wrong = random.choice(
        [
            {"temperature": -1},
            {"max_tokens": 0},
            {"max_tokens": 100_000},
            {"top_p": "much"},
            {"n": 0},
            {"model": "nobody"},
            {"structured_outputs": {"regex": "("}},
            {"no_such_field": 1},
        ]
    )
    return "/v1/completions", {"prompt": "x", **wrong}

"""`--kv-transfer-config`: what it may say, and what it means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.config import ConfigError, KVConnectorConfig
from engine.connectors.faults import Fault
from engine.connectors.settings import KVTransferConfig
from engine.llm import LLM
from engine.settings import EngineSettings

HOST = {"kv_connector": "HostMemoryConnector", "kv_role": "kv_both"}
SHARED = {"kv_connector": "SharedDirectoryConnector", "kv_role": "kv_producer"}


def parse(settings: object, **extra: object) -> KVTransferConfig:
    if extra:
        settings = {**settings, "kv_connector_extra_config": extra}  # type: ignore[dict-item]
    return KVTransferConfig.parse(json.dumps(settings))


def test_the_scheduler_is_told_role_policy_and_times() -> None:
    settings = SHARED | {"kv_load_failure_policy": "recompute"}
    config = parse(settings, shared_storage_path="/kv", load_timeout_seconds=5, lease_seconds=60)
    assert config.config() == KVConnectorConfig(
        connector="SharedDirectoryConnector",
        role="kv_producer",
        load_failure_policy="recompute",
        load_timeout_seconds=5,
        lease_seconds=60,
    )


def test_a_load_that_fails_ends_its_request_unless_told_otherwise() -> None:
    assert parse(HOST).kv_load_failure_policy == "fail"


def test_defaults() -> None:
    config = parse(HOST)
    assert (config.load_async, config.num_threads, config.max_bytes) == (True, 2, 1 << 30)
    assert parse(SHARED, shared_storage_path="kv").shared_storage_path == Path.cwd() / "kv"


@pytest.mark.parametrize(
    ("settings", "extra", "complaint"),
    [
        ([], {}, "no JSON object"),
        ({"kv_role": "kv_both"}, {}, "has no kv_connector"),
        ({"kv_connector": "HostMemoryConnector"}, {}, "has no kv_role"),
        (HOST | {"kv_connector": "NixlConnector"}, {}, "SharedDirectoryConnector"),
        (HOST | {"kv_role": "both"}, {}, "kv_producer or kv_consumer or kv_both"),
        (HOST | {"kv_load_failure_policy": "ignore"}, {}, "recompute or fail"),
        (HOST | {"kv_port": 14579}, {}, "kv_port, which is not known"),
        (HOST, {"shared_storage_path": "/kv"}, "shared_storage_path, which is not known"),
        (HOST, {"cpu_bytes_to_use": 0}, "1 or more"),
        (HOST, {"cpu_bytes_to_use": "1G"}, "it is a number"),
        (HOST, {"num_threads": True}, "it is a number"),
        (HOST, {"load_async": 1}, "true or false"),
        (HOST, {"load_timeout_seconds": "5"}, "number of seconds"),
        (HOST, {"load_timeout_seconds": -5}, "above 0"),
        (HOST, {"lease_seconds": True}, "number of seconds"),
        (HOST, {"ack_timeout_seconds": 9, "lease_seconds": 8}, "before their time-out"),
        (SHARED, {}, "no shared_storage_path"),
        (SHARED, {"shared_storage_path": 7}, "path of a directory"),
    ],
)
def test_what_cannot_be_used_is_refused(settings: object, extra: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse(settings, **extra)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ConfigError, match="no JSON"):
        KVTransferConfig.parse("{kv_connector: HostMemoryConnector}")


def test_faults_need_a_connector() -> None:
    with pytest.raises(ConfigError, match="add --kv-transfer-config"):
        EngineSettings(inject=[Fault.parse("load=fail")])


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    settings = EngineSettings(
        scripted_step_seconds=0,
        kv_transfer_config=parse(SHARED, shared_storage_path=str(tmp_path)),
    )
    with pytest.raises(ConfigError, match="chmod 700"):
        LLM(settings)

"""Messages reach a real receiver: signed, in order, again after failures, and never in the way."""

from __future__ import annotations

import hashlib
import hmac
import random
from pathlib import Path

import pytest

from diagnose.watch.webhook import (
    MOST_WAITING,
    SHORTEST_SECRET,
    Message,
    Patience,
    Webhook,
    check_url,
    read_secret,
)
from telemetry.errors import StepscopeError
from tests.diagnose.watch.receiver import receiver
from tests.telemetry.collector.builders import wait_until
from tests.telemetry.exporters.test_scrape import free_port

SECRET = b"a-secret-of-twenty-and-more"
HASTY = Patience(first_seconds=0.01, longest_seconds=0.02)


def test_a_message_is_signed_over_its_time_and_body() -> None:
    with receiver() as heard:
        hook = Webhook(heard.url, SECRET)
        hook.post(Message("d1", b'{"n": 1}'))
        assert hook.close()
    (request,) = heard.received
    timestamp = request.headers["X-Stepscope-Timestamp"]
    signed = timestamp.encode() + b"." + request.body
    expected = "v1=" + hmac.new(SECRET, signed, hashlib.sha256).hexdigest()
    assert request.headers["X-Stepscope-Signature"] == expected
    assert request.headers["X-Stepscope-Delivery"] == "d1"
    assert request.headers["Content-Type"] == "application/json"


def test_without_a_secret_nothing_is_signed() -> None:
    with receiver() as heard:
        hook = Webhook(heard.url)
        hook.post(Message("d1", b"{}"))
        assert hook.close()
    assert "X-Stepscope-Signature" not in heard.received[0].headers


@pytest.mark.parametrize("code", [500, 502, 503, 429, 408])
def test_a_receiver_in_trouble_is_tried_again(code: int) -> None:
    told: list[str] = []
    with receiver(code, code) as heard:
        hook = Webhook(heard.url, SECRET, patience=HASTY, tell=told.append)
        hook.post(Message("d1", b'{"n": 1}'))
        hook.post(Message("d2", b'{"n": 2}'))
        assert hook.close(20.0)
    assert [each.headers["X-Stepscope-Delivery"] for each in heard.received] == ["d1"] * 3 + ["d2"]
    assert (hook.num_delivered, hook.num_dropped) == (2, 0)
    assert len(told) == 1
    assert f"HTTP {code}" in told[0]


@pytest.mark.parametrize("code", [400, 401, 404, 410])
def test_a_refusal_is_told_and_not_repeated(code: int) -> None:
    told: list[str] = []
    with receiver(code) as heard:
        hook = Webhook(heard.url, patience=HASTY, tell=told.append)
        hook.post(Message("d1", b"{}"))
        hook.post(Message("d2", b"{}"))
        assert hook.close(20.0)
    assert len(heard.received) == 2
    assert (hook.num_delivered, hook.num_dropped) == (1, 1)
    assert f"message d1 to {hook.name} is lost: HTTP {code}" in told


def test_a_redirect_is_not_followed() -> None:
    with receiver() as elsewhere, receiver(302, Location=elsewhere.url) as heard:
        hook = Webhook(heard.url, patience=HASTY)
        hook.post(Message("d1", b"{}"))
        hook.close(20.0)
    assert (len(heard.received), len(elsewhere.received)) == (1, 0)


def test_a_receiver_that_comes_back_gets_what_waited() -> None:
    told: list[str] = []
    port = free_port()
    hook = Webhook(f"http://127.0.0.1:{port}/", patience=HASTY, tell=told.append)
    hook.post(Message("d1", b"{}"))
    wait_until(lambda: told)
    assert "did not take a message" in told[0]
    with receiver(port=port) as heard:
        assert hook.close(20.0)
    assert (len(heard.received), hook.num_delivered) == (1, 1)


def test_what_waits_is_bounded_and_the_oldest_makes_room() -> None:
    told: list[str] = []
    slow = Patience(first_seconds=60.0)
    hook = Webhook(f"http://127.0.0.1:{free_port()}/", patience=slow, tell=told.append)
    for number in range(MOST_WAITING + 10):
        hook.post(Message(f"d{number}", b"{}"))
    assert hook.num_dropped == 10
    assert any("message d0 " in text for text in told)
    hook.close(0.0)


def test_what_is_too_old_is_dropped() -> None:
    patience = Patience(first_seconds=0.01, longest_seconds=0.02, max_age_seconds=0.0)
    with receiver(503, 503) as heard:
        hook = Webhook(heard.url, patience=patience)
        hook.post(Message("d1", b"{}"))
        assert hook.close(20.0)
    assert (len(heard.received), hook.num_dropped) == (1, 1)


def test_pauses_double_with_jitter_up_to_a_limit() -> None:
    patience, rng = Patience(first_seconds=1.0, longest_seconds=60.0), random.Random(7)
    pauses = [[patience.pause(n, rng) for _ in range(50)] for n in range(1, 12)]
    for n, drawn in enumerate(pauses):
        whole = min(2**n, 60)
        assert all(whole / 2 <= pause <= whole for pause in drawn)
        assert len(set(drawn)) > 10


@pytest.mark.parametrize(
    "url",
    ["", "ftp://h/", "http://", "file:///etc/passwd", "http://h:99999/", "http://h/\r\nX: y",
     "http://h/a b", "http://dana:secret@h/"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(StepscopeError, match="--webhook"):
        check_url(url)


def test_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o644)
    with pytest.raises(StepscopeError, match="chmod 600"):
        read_secret(path)
    path.chmod(0o600)
    assert read_secret(path) == SECRET
    path.write_bytes(b"short")
    with pytest.raises(StepscopeError, match=f"{SHORTEST_SECRET} or more"):
        read_secret(path)
    with pytest.raises(StepscopeError, match="cannot be read"):
        read_secret(tmp_path / "none")

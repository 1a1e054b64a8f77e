"""Real publishers, as vLLM's: bound and connected, late, losing messages, replaying, hostile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from telemetry.errors import CollectorError
from telemetry.sources.kv_events import messages
from telemetry.sources.kv_events.endpoints import Endpoint
from telemetry.sources.kv_events.subscriber import KvEventsListener
from telemetry.sources.rows import Row
from tests.telemetry.collector.builders import wait_until
from tests.telemetry.sources.kv_events.builders import (
    PATIENCE_MS,
    Publisher,
    payload,
    publisher,
    removed,
    stored,
)
from tests.telemetry.sources.waiting_rows import WaitingRows


@contextmanager
def listening(log: Path, *endpoints: Endpoint) -> Iterator[tuple[KvEventsListener, WaitingRows]]:
    listener, rows = KvEventsListener(endpoints, log), WaitingRows()
    listener.start(rows)
    try:
        yield listener, rows
    finally:
        listener.close()


@contextmanager
def connected(log: Path, replay: str | None = None) -> Iterator[
    tuple[Publisher, KvEventsListener, WaitingRows]
]:  # fmt: skip
    """A publisher that has bound, and a listener that is connected to it."""
    with (
        publisher() as told,
        listening(log, Endpoint(address=told.address, binds=False, replay=replay)) as (
            listener,
            rows,
        ),
    ):
        told.wait_for_listener()
        yield told, listener, rows


def numbers(rows: list[Row]) -> list[int]:
    return [row["batch"] for row in rows]


def event(number: int) -> bytes:
    return payload(stored(number))


def test_a_publisher_that_binds_is_connected_to(tmp_path: Path) -> None:
    with connected(tmp_path) as (told, listener, rows):
        told.send(0, payload(stored(b"a", b"b"), removed(b"c"), rank=1))
        first, second = rows.wait_for(2)
        assert (first["kind"], first["num_blocks"], second["kind"]) == ("stored", 2, "removed")
        (day,) = rows.take().values()
        assert day["engines"][0]["dp_rank"] == 1
        wait_until(lambda: f"{told.address} (1 connected): 1 messages, 2 rows" in listener.status())


def test_a_publisher_that_connects_finds_the_listener_bound(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/kv"
    with (
        listening(tmp_path, Endpoint(address=address, binds=True)) as (listener, rows),
        publisher(address, binds=False) as told,
    ):
        told.wait_for_listener()
        told.send(0, event(0))
        assert numbers(rows.wait_for(1)) == [0]
        wait_until(lambda: f"{address} (1 connected)" in listener.status())
        assert listener.is_well


def test_several_publishers_that_connect_are_told_apart_by_topic(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/kv"
    with (
        listening(tmp_path, Endpoint(address=address, binds=True)) as (listener, rows),
        publisher(address, binds=False) as one,
        publisher(address, binds=False) as two,
    ):
        for told in (one, two):
            told.wait_for_listener()
        for number in (4, 5):
            one.send(number, event(number), b"kv@one")
            two.send(100 + number, event(number), b"kv@two")
        assert len({row["engine"] for row in rows.wait_for(4)}) == 2
        assert "lost" not in listener.status()


def test_who_comes_late_has_lost_nothing_that_it_could_know_of(tmp_path: Path) -> None:
    with connected(tmp_path) as (told, listener, rows):
        told.send(41, event(41))
        told.send(42, event(42))
        assert numbers(rows.wait_for(2)) == [41, 42]
        assert "lost" not in listener.status()


def test_a_message_that_is_lost_is_counted_and_not_made_up_for(tmp_path: Path) -> None:
    with connected(tmp_path) as (told, listener, rows):
        for number in (0, 1, 5):
            told.send(number, event(number))
        assert numbers(rows.wait_for(3)) == [0, 1, 5]
        assert "3 messages lost" in listener.status()


def test_a_restart_is_told(tmp_path: Path) -> None:
    with connected(tmp_path) as (told, listener, rows):
        for number in (7, 8, 0, 1):
            told.send(number, event(number))
        rows.wait_for(4)
        assert "1 restarts" in listener.status()
        assert "lost" not in listener.status()


class Replayer:
    """A replay endpoint, as vLLM's publisher has one, with what it still keeps."""

    def __init__(self, kept: range, *, with_topic: bool = True) -> None:
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.bind("tcp://127.0.0.1:*")
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.asked: list[int] = []
        self._kept = kept
        self._topic = [b"kv"] if with_topic else []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        if not self._socket.poll(PATIENCE_MS):
            return
        client, _, start = self._socket.recv_multipart()
        self.asked.append(int.from_bytes(start, "big"))
        for number in self._kept:
            if number >= self.asked[-1]:
                content = [number.to_bytes(8, "big"), event(number)]
                self._socket.send_multipart([client, b"", *self._topic, *content])
        end = (-1).to_bytes(8, "big", signed=True)
        self._socket.send_multipart([client, b"", *self._topic, end, b""])

    def close(self) -> None:
        self._thread.join()
        self._socket.close(linger=1000)


@pytest.mark.parametrize("with_topic", [True, False])
def test_lost_messages_are_replayed_in_their_order(tmp_path: Path, with_topic: bool) -> None:
    replayer = Replayer(range(3, 50), with_topic=with_topic)
    with connected(tmp_path, replayer.address) as (told, listener, rows):
        for number in (0, 1, 6, 7):
            told.send(number, event(number))
        assert numbers(rows.wait_for(7)) == [0, 1, 3, 4, 5, 6, 7]
        assert "1 messages lost, 3 of lost ones replayed" in listener.status()
    replayer.close()
    assert replayer.asked == [2]


def test_what_an_engine_told_after_its_restart_is_replayed_too(tmp_path: Path) -> None:
    replayer = Replayer(range(9))
    with connected(tmp_path, replayer.address) as (told, listener, rows):
        for number in (40, 2):
            told.send(number, event(number))
        assert numbers(rows.wait_for(4)) == [40, 0, 1, 2]
        assert "2 of lost ones replayed, 1 restarts" in listener.status()
    replayer.close()
    assert replayer.asked == [0]


def test_a_replay_that_never_answers_costs_its_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.sources.kv_events.replay.PATIENCE_SECONDS", 0.1)
    with connected(tmp_path, f"ipc://{tmp_path}/nobody") as (told, listener, rows):
        for number in (0, 2):
            told.send(number, event(number))
        assert numbers(rows.wait_for(2)) == [0, 2]
        assert "1 messages lost" in listener.status()


def test_garbage_is_counted_and_the_next_message_is_taken(tmp_path: Path) -> None:
    with connected(tmp_path) as (told, listener, rows):
        told.send(0, b"garbage")
        told.send_frames(b"only one frame")
        told.send_frames(b"", b"short", event(0))
        told.send_frames(b"", b"\xff" * 8, event(0))
        told.send_frames(b"", bytes(8), event(0), b"one too many")
        told.send(0, payload(stored(0), ts=5.0))
        told.send(1, payload({"type": "New"}, stored(0)))
        assert numbers(rows.wait_for(1)) == [1]
        assert "7 not understood" in listener.status()


def test_a_message_that_is_too_large_is_never_received(tmp_path: Path) -> None:
    with connected(tmp_path) as (told, _, rows):
        told.send(0, bytes(messages.MOST_BYTES + 1))
        told.wait_for_goodbye()  # ZeroMQ hangs up on the sender, and connects again
        told.wait_for_listener()
        told.send(1, event(1))
        assert numbers(rows.wait_for(1)) == [1]


def test_an_address_that_cannot_be_bound_is_told(tmp_path: Path) -> None:
    with publisher() as other:
        listener = KvEventsListener([Endpoint(address=other.address, binds=True)], tmp_path)
        with pytest.raises(CollectorError, match="cannot be bound: Address already in use"):
            listener.start(WaitingRows())
        assert listener.status() == "KV events: not listening yet"
        listener.close()


def test_closing_lets_go_of_the_address(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/kv"
    with listening(tmp_path, Endpoint(address=address, binds=True)):
        assert os.path.exists(f"{tmp_path}/kv")
    with listening(tmp_path, Endpoint(address=address, binds=True)) as (listener, _):
        assert "0 messages" in listener.status()

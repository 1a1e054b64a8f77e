"""How long the device takes for a forward pass, without waiting for it in between."""

from __future__ import annotations

from typing import Protocol

import torch


class DeviceClock(Protocol):
    """Times what lies between `begin` and `end`."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def elapsed_ns(self) -> int | None:
        """Returns how long it took; None where the host was busy with it itself.

        Waits for the device, so it is asked once the step's tokens are there.
        """
        ...


def device_clock(device: torch.device) -> DeviceClock:
    """Returns the clock of a device."""
    return _CudaClock(device) if device.type == "cuda" else _NoClock()


class _NoClock:
    """The host computes itself: its own clock says it all."""

    def begin(self) -> None:
        """Does nothing."""

    def end(self) -> None:
        """Does nothing."""

    def elapsed_ns(self) -> int | None:
        """Returns None."""
        return None


class _CudaClock:
    """Two marks in the stream of kernels."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._ended = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """Marks the place before the first kernel."""
        self._began.record(torch.cuda.current_stream(self._device))

    def end(self) -> None:
        """Marks the place behind the last one."""
        self._ended.record(torch.cuda.current_stream(self._device))

    def elapsed_ns(self) -> int | None:
        """Returns the time between the marks."""
        self._ended.synchronize()
        return int(self._began.elapsed_time(self._ended) * 1e6)

"""From numpy to the device, without waiting for it.

A copy from ordinary memory makes the host wait; one from page-locked memory does not. torch keeps
page-locked memory for reuse and hands a piece out again only once the copies from it are done, so
nothing here has to know how long a step takes.

Source: torch, CUDA semantics, "Use pinned memory buffers" (docs/source/notes/cuda.rst).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Returns the array as a tensor: on CPU the same memory, else a copy that is on its way."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)

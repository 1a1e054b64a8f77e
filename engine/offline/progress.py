"""How far a batch is, for somebody who looks at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(num_requests: int, use_tqdm: bool | None) -> Iterator[Callable[[int, int], None]]:
    """Shows how many requests have ended; yields what is to be told of each step."""
    if not (sys.stderr.isatty() if use_tqdm is None else use_tqdm):
        yield lambda num_tokens, num_ended: None
        return
    from tqdm import tqdm

    with tqdm(total=num_requests, desc="completions", unit="", dynamic_ncols=True) as bar:
        num_output_tokens = 0

        def moved(num_tokens: int, num_ended: int) -> None:
            nonlocal num_output_tokens
            num_output_tokens += num_tokens
            elapsed_seconds = max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(
                f"{num_output_tokens / elapsed_seconds:,.0f} output tokens/s", refresh=False
            )
            bar.update(num_ended)

        yield moved

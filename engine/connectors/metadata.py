"""What a step tells the connectors' workers: which transfers begin, and which nobody waits for."""

from __future__ import annotations

from dataclasses import dataclass

from engine.encoder_cache import EncoderItem


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLoad:
    """KV to be brought into a request's blocks.

    Attributes:
        block_ids: its whole block table, one list a KV group.
        num_local_tokens: tokens at its beginning that are there already.
        num_external_tokens: tokens behind them that are to be brought.
        is_async: the load runs beside the steps and is reported when it is done; else it is part
            of the step, which needs its KV.
    """

    request_id: str
    block_ids: tuple[list[int], ...]
    num_local_tokens: int
    num_external_tokens: int
    is_async: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KVConnectorMetadata:
    """KV transfers of a step.

    Attributes:
        loads: loads that begin with this step, synchronous ones too.
        given_up: requests that no longer wait for the load they had begun. It may be cut short; its
            end has to be reported all the same, for its blocks are kept until then.
    """

    loads: tuple[KVLoad, ...] = ()
    given_up: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ECConnectorMetadata:
    """Encoder outputs that are sent for with this step; `position` is the first asker's."""

    loads: tuple[EncoderItem, ...] = ()

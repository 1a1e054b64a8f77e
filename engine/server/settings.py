"""What the API process was told."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The API process's flags.

    `live_timeout_seconds`: with requests open and no token scheduled for so long, `/live` fails.
    `chat_template`: the source of a template that is used instead of the model's.
    `api_keys`: any of them opens `/v1`; without one it is open. `admin_token`: what an operator on
    another machine shows; None lets nobody elsewhere in.

    Raises:
        ConfigError: that time is not above 0.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    live_timeout_seconds: float = 30.0
    chat_template: str | None = None
    api_keys: tuple[str, ...] = ()
    admin_token: str | None = None

    def __post_init__(self) -> None:
        if not self.live_timeout_seconds > 0:  # NaN too
            raise ConfigError(
                f"--live-timeout is {self.live_timeout_seconds:g}: it must be above 0 seconds"
            )

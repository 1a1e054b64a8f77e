"""The engine's commands: `serve`, `load` and `demo`.

What of telemetry goes into a served engine is not decided here: the composition root hands in a
`ServeWiring`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import ConfigError
from engine.serve_arguments import add_serve_arguments
from engine.workload import demo, load_command

if TYPE_CHECKING:
    from engine.server.engine_process import RecorderFactory
    from engine.server.messages import EngineReady
    from engine.server.server import Server
    from engine.settings import EngineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeWiring:
    """What the composition root adds to a served engine.

    `recorder_factory` returns what makes the recorder inside the engine process (picklable);
    `prepare` may mount applications, and start what should run beside the server.
    """

    recorder_factory: Callable[[argparse.Namespace], RecorderFactory]
    prepare: Callable[[argparse.Namespace, Server], None]


def add_commands(
    commands: Any,
    parents: list[argparse.ArgumentParser],
    wiring: ServeWiring | None = None,
) -> None:
    """Registers `serve`, `load` and `demo`. Without a wiring nothing is recorded."""
    serve = commands.add_parser(
        "serve",
        parents=parents,
        help="run an engine with an OpenAI-compatible API, recorded",
        description="Run an engine with an OpenAI-compatible API. Flags are vLLM's.",
    )
    add_serve_arguments(serve)
    serve.set_defaults(run=lambda args: run_serve(args, wiring))
    load_command.add_command(commands, parents)
    demo.add_command(commands, parents)


def engine_settings(args: argparse.Namespace) -> EngineSettings:
    """Returns the engine's half of `serve`'s arguments."""
    from dataclasses import fields

    from engine.settings import EngineSettings

    told = {field.name: getattr(args, field.name) for field in fields(EngineSettings)}
    # argparse collects what may be given several times in lists
    frozen: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in told.items()
    }
    return EngineSettings(**frozen)


def run_serve(args: argparse.Namespace, wiring: ServeWiring | None) -> int:
    """Serves until told to stop; exit code and errors are `Server.run`'s."""
    from engine.server.access import read_admin_token, read_secrets
    from engine.server.engine_process import no_recorder
    from engine.server.server import Server
    from engine.server.settings import ServerSettings

    recorded = wiring is not None and not args.no_record
    server = Server(
        engine_settings(args),
        ServerSettings(
            host=args.host,
            port=args.port,
            live_timeout_seconds=args.live_timeout,
            chat_template=_read_template(args.chat_template),
            api_keys=read_secrets(args.api_key_file, "--api-key-file"),
            admin_token=read_admin_token(args.admin_token_file),
        ),
        recorder_factory=(
            wiring.recorder_factory(args) if wiring is not None and recorded else no_recorder
        ),
        say=_say,
    )
    if wiring is not None:
        wiring.prepare(args, server)
    server.on_ready(lambda url, ready: _print_banner(args, url, ready, recorded))
    return server.run()


def _read_template(path: Path | None) -> str | None:
    """Returns the source of a chat template.

    Raises:
        ConfigError: the file cannot be read.
    """
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--chat-template {path} cannot be read: {error}") from None


def _say(line: str) -> None:
    print(line, flush=True)


def _print_banner(args: argparse.Namespace, url: str, ready: EngineReady, recorded: bool) -> None:
    """Prints where the engine is, what it has, and what to do next."""
    cache = ready.config.cache
    log = getattr(args, "log", None)
    _say(f"ready at {url}")
    _say(f"  model      {engine_settings(args).model_name} on {ready.device}, {ready.dtype}")
    _say(
        f"  KV cache   {cache.num_usable_blocks:,} blocks of {cache.block_size} tokens"
        f" = {cache.num_kv_tokens:,} tokens"
    )
    for about, note in ready.device_notes.items():
        _say(f"  {about:<10} {note}")
    _say(f"  log        {log}" if recorded else "  log        not recorded")
    _say(f"  load       stepscope load --url {url} --preset storm")
    if recorded:
        _say(f"  diagnose   stepscope diagnose --log {log}")

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
    _add_serve_arguments(serve)
    serve.set_defaults(run=lambda args: run_serve(args, wiring))
    load_command.add_command(commands, parents)
    demo.add_command(commands, parents)


def _add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "model",
        nargs="?",
        type=Path,
        metavar="MODEL",
        help="local directory of a transformers checkpoint, a GGUF file, or gemma3-270m (once its "
        "package is installed); without it a tiny Llama is made",
    )
    api = parser.add_argument_group("API")
    api.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    api.add_argument("--port", type=int, default=8000, help="0 takes a free one (%(default)s)")
    api.add_argument("--served-model-name", metavar="NAME", help="the model's name in the API")
    api.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="Jinja template of chats (the model's)"
    )
    api.add_argument(
        "--live-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="/live fails after so long without progress (%(default)s)",
    )
    _add_engine_arguments(parser.add_argument_group("engine"))
    record = parser.add_argument_group("record")
    record.add_argument("--no-record", action="store_true", help="do not record this engine")
    record.add_argument(
        "--no-collector",
        action="store_true",
        help="record, but start no collector: one runs already, as a service or in a sidecar",
    )
    record.add_argument(
        "--detail",
        metavar="steps|transitions|full|sampled=N",
        help="what is kept; full keeps each request's row of each step, sampled=N of every Nth "
        "($STEPSCOPE_DETAIL, else transitions)",
    )
    record.add_argument(
        "--linger",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="the collector stays so long after the last engine (%(default)s)",
    )
    parser.add_argument("--scripted-step-seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--step-pipe", type=Path, help=argparse.SUPPRESS)


def _add_engine_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    switch = argparse.BooleanOptionalAction
    add(
        "--dtype",
        default="auto",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="of weights and KV cache; auto is the checkpoint's (%(default)s)",
    )
    add("--seed", type=int, default=0, help="of draws of requests without one (%(default)s)")
    add(
        "--max-model-len",
        type=int,
        metavar="TOKENS",
        help="longest prompt and output together (the model's positions)",
    )
    add("--block-size", type=int, default=16, help="tokens of a KV block (%(default)s)")
    add(
        "--num-gpu-blocks-override",
        type=int,
        metavar="BLOCKS",
        help="KV blocks, the null block among them (what fits)",
    )
    add(
        "--gpu-memory-utilization",
        type=float,
        default=0.92,
        metavar="RATIO",
        help="share of a CUDA device for weights and KV cache (%(default)s)",
    )
    add("--max-num-seqs", type=int, default=256, help="running requests (%(default)s)")
    add(
        "--max-num-active-seqs",
        type=int,
        help="running requests up to which more are admitted (--max-num-seqs)",
    )
    add("--max-num-batched-tokens", type=int, default=2048, help="of a step (%(default)s)")
    add("--max-num-scheduled-tokens", type=int, help="of a step (--max-num-batched-tokens)")
    add(
        "--long-prefill-token-threshold",
        type=int,
        default=0,
        help="cap of one request's tokens in a step; 0 is off (%(default)s)",
    )
    add(
        "--scheduling-policy",
        default="fcfs",
        choices=("fcfs", "priority"),
        help="who is served first, and evicted last (%(default)s)",
    )
    add(
        "--enable-chunked-prefill",
        action=switch,
        default=True,
        help="let a step take part of a prompt (on)",
    )
    add(
        "--enable-prefix-caching",
        action=switch,
        default=True,
        help="use the KV blocks of equal beginnings again (on)",
    )
    add(
        "--scheduler-reserve-full-isl",
        action=switch,
        default=True,
        help="admit a request only when its whole prompt fits (on)",
    )
    add(
        "--watermark",
        type=float,
        default=0.0,
        help="share of the KV pool that admissions leave free (%(default)s)",
    )
    add(
        "--allow-oversize",
        action="store_true",
        help="queue requests that can never fit, instead of refusing them",
    )


def engine_settings(args: argparse.Namespace) -> EngineSettings:
    """Returns the engine's half of `serve`'s arguments."""
    from dataclasses import fields

    from engine.settings import EngineSettings

    return EngineSettings(**{f.name: getattr(args, f.name) for f in fields(EngineSettings)})


def run_serve(args: argparse.Namespace, wiring: ServeWiring | None) -> int:
    """Serves until told to stop; exit code and errors are `Server.run`'s."""
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
    _say(f"  log        {log}" if recorded else "  log        not recorded")
    _say(f"  load       stepscope load --url {url} --preset storm")
    if recorded:
        _say(f"  diagnose   stepscope diagnose --log {log}")

"""vLLM's log: what an operator can learn from a server's console output alone.

The life of a line: `reading` takes it from a file, bounded; `prefixes` takes off what the
environment put before it (colours, docker, Kubernetes, journald, Ray), `heads` what vLLM did
(process, level, time, place). What is left goes to whoever knows it: `stats` (the line every ten
seconds), `iterations` (one a step), `startup` (settings), `errors` and `tracebacks` (what went
wrong). `moments` makes times of it, `sample_rows` and `event_rows` make rows, `engines` keeps what
is known of each data-parallel rank. `importer` is the loop, `notes` says what it could not know,
and `command` is `stepscope import vllm-log`.

Formats are those of vLLM 0.4 to 0.32. Lines that carry a request's content are dropped before
anything else looks at them, and no text is stored but what `errors` spells out.
"""

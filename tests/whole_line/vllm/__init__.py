"""A real `vllm serve` on this machine, recorded by the plug-in as an operator would install it.

Its tour: `plugin` installs this checkout beside a vLLM, `model` makes what is served, `server` runs
it, `recording` puts the collector and the witness beside it, `load` sends requests and says when
they were under way. `inside` holds the two modules that run in vLLM's own processes: a witness that
writes down every step's output, and a slow KV connector. `ledger` works preemptions and recomputed
tokens out of the witness's lines; it has no line in common with what is tested against it.
`replaying` gives the recorded run to our own scheduler, which has to decide the same.

A start takes 20 to 60 seconds, so tests share a server: one for all that needs no KV connector, one
for the connector, one with two data-parallel ranks. Each looks at its own stretch of the log.
"""

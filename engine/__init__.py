"""The engine: a V1 scheduler, a paged KV cache, and a runner that executes what they decide.

Its tour: `config` (settings under vLLM's names) and `request` (one request's state); `scheduler`
and `kv_cache` (the decisions; no torch); `runner` (the model); `core` (the step loop), `server`
(the OpenAI-compatible API) and `workload` (load to try it with). Of telemetry it knows the leaves
`vocabulary`, `records` and `recorder` only.
"""

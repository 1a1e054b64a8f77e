"""Sources: what can be learned of an engine that is not ours.

`vllm` is the plug-in that records from inside a stock vLLM, through the same ring as our own
engine. The other modules read what an operator already has: one source a file or folder. Each
brings rows of `telemetry.source_records` under an engine's number that it derives (`identity`), and
reaches the log in one of two ways: `live`, polled inside a collector, or `importing`, once, from
files (`opening` opens them, `summary` says what came of it). `commands` is `stepscope import`;
docs/sources.md says for each column what each source can and cannot know.
"""

"""What the plug-in costs a running vLLM: parts of `benchmarks.vllm_overhead`.

`workloads` are the loads, each of which keeps an engine in one and the same state for hundreds of
steps; `switch` runs inside the engine core, turns recording off and on every few steps and times
them; `differences` makes a mean and an interval of what it wrote.
"""

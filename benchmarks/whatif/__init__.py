"""How right a what-if is: replays against records, and predictions against what then happened.

    python -m benchmarks.whatif list
    python -m benchmarks.whatif play DIR FILE [RUN...]    each run as it is, and with its change
    python -m benchmarks.whatif report DIR FILE           the tables of benchmarks/RESULTS.md

`runs` is the list, with its seeds; `playing` plays them: on a simulated clock, on a served engine,
on a vLLM. What is predicted of a run is written into FILE before its change is made.
"""

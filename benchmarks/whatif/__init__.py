"""How right a what-if is: replays against records, and predictions against what then happened.

    python -m benchmarks.whatif list
    python -m benchmarks.whatif record DIR [RUN...]     the runs as they are
    python -m benchmarks.whatif predict DIR FILE        back-tests, and what each change would do
    python -m benchmarks.whatif measure DIR [RUN...]    the same loads, with the change made
    python -m benchmarks.whatif report DIR FILE         the tables of benchmarks/RESULTS.md

`runs` is the list, with its seeds; `playing` plays them: on a simulated clock, on a served engine,
on a vLLM. What was predicted is written into FILE before anything is measured.
"""

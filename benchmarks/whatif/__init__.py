"""How right a what-if is: replays against records, and predictions against what then happened.

    python -m benchmarks.whatif list
    python -m benchmarks.whatif record DIR [RUN...]         play each run as it is
    python -m benchmarks.whatif predict DIR FILE [RUN...]   predict its change from its log
    python -m benchmarks.whatif change DIR [RUN...]         make the change, play the load again
    python -m benchmarks.whatif report DIR FILE             the tables of benchmarks/RESULTS.md

`runs` is the list, with its seeds; `playing` plays them: on a `simulated` clock (with a
`simulated_store`), on a served engine or on a vLLM (to which `sending` sends the load). `proof`
keeps the order: FILE (`predictions.json` here) is written before a change is made, and not again.
`judging` predicts and measures, `tables` says it.
"""

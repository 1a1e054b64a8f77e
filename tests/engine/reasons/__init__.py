"""A run for every word that the scheduler writes down: how each reason comes about.

`stage` builds the runs; `skips`, `stops`, `zeros`, `preemptions`, `ends` and `events` have one
scenario a word, each a function that plays it through the public interface and returns the run.
"""

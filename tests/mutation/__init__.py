"""Deliberate breaks of the scheduler, and whether a test notices them: `python -m tests.mutation`.

`table` lists the breaks, each tied to a rule of the scheduler's numbered rules; `trial` applies one
to a copy of the tree and runs the tests on it; `__main__` goes through all of them.
"""

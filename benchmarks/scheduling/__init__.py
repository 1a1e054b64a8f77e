"""Two schedulers through the same work, step by step: ours and vLLM's own.

Its tour: `workloads` are what they are given, `course` takes one workload through one scheduler and
times it. `ours` and `theirs` are the two schedulers as a course drives them. vLLM's runs in the
Python that it is installed in: `serving` is that process, `peer` talks to it. `comparison`
alternates the two and demands the same decisions, `table` prints what came out. `workloads`,
`course` and `serving` need the standard library alone.
"""

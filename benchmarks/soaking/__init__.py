"""The parts of `benchmarks.soak`.

What is asked for (`features`), how callers behave (`callers`), what an operator does meanwhile
(`operator`), what is measured (`gauges`), and what is made of it (`verdict`).
"""

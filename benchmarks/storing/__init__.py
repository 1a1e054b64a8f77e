"""What the step log costs: the parts of `benchmarks.store`.

Its tour: `engines` are simulated engines that write real rings; `drain` compares the collector's
way into DuckDB with DuckDB's own; `collectors` measures the collector as a process; `sizes` weighs
a log; `generated` makes a long log out of a short one, and `queries` asks it.
"""

"""Structured output: grammars that say which tokens may come next.

Its tour: `bitmask` (what the runner is given for a step).
"""

"""Engines under the same load: ours, vLLM, and what `transformers` brings itself.

`loads` is what is asked for, `sides` are servers to ask, `transformers_side` the one that is no
server, `measuring` one round of a load on one side, `comparison` the rounds in turns, and `table`
what is printed of them.
"""

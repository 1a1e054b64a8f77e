"""The engine on a CUDA device, held against what the device itself can do.

`limits` measures the device, `models` makes models of random weights, `serving` times the engine's
decodes and prefills, `sections` writes it down. `benchmarks/gpu_check.py` is the command.
"""

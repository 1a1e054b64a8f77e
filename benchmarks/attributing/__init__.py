"""Runs whose preemptions have two causes, mixed in proportions that are known by removing each."""

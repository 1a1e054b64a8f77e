"""Measured comparisons: what recording, scheduling and collecting cost."""

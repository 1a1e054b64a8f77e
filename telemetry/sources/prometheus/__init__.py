"""Prometheus as a source: an engine's pages, files of them, and a server that keeps them."""

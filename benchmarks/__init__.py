"""Benchmarks against other software, measured in one run: ``make bench``."""

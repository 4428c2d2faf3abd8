"""Stopping rules: a closed set, one file each."""

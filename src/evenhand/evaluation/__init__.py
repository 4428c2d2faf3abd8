"""Evaluate models on a pool of items: calls, labels, a journal, and where they are used (pytest, Inspect)."""

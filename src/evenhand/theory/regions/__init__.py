"""Regions, one file per kind: enter it, leave it, or beat the best policy from inside it."""

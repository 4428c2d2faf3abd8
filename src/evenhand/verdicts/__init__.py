"""Data already collected: a verdict for every cell and policy, with intervals, and how many more samples."""

"""One real experiment.

A fold over its journal, for hours or months, on outcomes that come late, twice, wrong or never.
"""

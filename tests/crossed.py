"""Tests over all pairs of members of two sets, most of them slow."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def crossed(first: str, ones: Iterable[str], second: str, others: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrise a test over all pairs; `make test` runs those of a diagonal, with every member in it."""
    ones, others = list(ones), list(others)
    rows = max(len(ones), len(others))
    diagonal = {(ones[i % len(ones)], others[i % len(others)]) for i in range(rows)}
    return pytest.mark.parametrize(
        (first, second),
        [
            pytest.param(one, other, marks=() if (one, other) in diagonal else pytest.mark.slow)
            for one in ones
            for other in others
        ],
    )

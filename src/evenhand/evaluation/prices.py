"""Prices of calls and of labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evenhand.errors import BadInput, nearest, shown
from evenhand.evaluation.sampling import Prices
from evenhand.model.argument_checks import is_number


def prices_of_calls(price: float | Mapping[str, float] | None, candidates: Iterable[str]) -> dict[str, float]:
    """Return the price of a call by candidate; empty without prices."""
    if price is None:
        return {}
    names = list(candidates)
    given = price if isinstance(price, Mapping) else dict.fromkeys(names, price)
    for name, value in given.items():
        if name not in names:
            raise BadInput(f"there is no candidate {shown(name)}{nearest(str(name), names)}")
        if not is_number(value) or value < 0:
            raise BadInput(f"the price of a call must be a number, at least 0; it is {shown(value)}.")
    return {name: float(value) for name, value in given.items()}


def price_of_label(price: float | None) -> float | None:
    """Return the price of a label, checked."""
    if price is not None and (not is_number(price) or price < 0):
        raise BadInput(f"the price of a label must be a number, at least 0; it is {shown(price)}.")
    return None if price is None else float(price)


def known_prices(
    prices: Mapping[str, float], label: float | None, candidates: Iterable[str]
) -> Prices | None:
    """Return the prices by which policies are chosen; None where no call has a price."""
    if not any(prices.values()):
        return None
    return Prices(tuple(prices.get(name, 0.0) for name in candidates), label or 0.0)

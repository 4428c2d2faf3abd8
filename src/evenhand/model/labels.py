"""Tables by name: numbers per group, prices of samples and means, matched with the problem's own names.

A table may be given by position (a number, a list, a row per policy) or by name. Names that are not known
are refused with the nearest known one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest
from evenhand.model.bounds import checked_table, is_number

Array = NDArray[np.float64]


def checked_per_group(value: Any, what: str) -> Any:
    """One number, a tuple with one per group, or pairs (group name, number): frozen, and finite."""
    if isinstance(value, Mapping):
        for name, number in value.items():
            if not isinstance(name, str) or not is_number(number):
                raise BadInput(
                    f"{what} by group must map names to finite numbers; it has {name!r}: {number!r}."
                )
        if not value:
            raise BadInput(f"{what} by group must name at least one group; the table is empty.")
        return tuple((name, float(number)) for name, number in value.items())
    if is_named(value):
        return value
    table = checked_table(value, what)
    if table.ndim > 1:
        raise BadInput(f"{what} must be one number, a list per group or a table by group; it is {value!r}.")
    return tuple(table.tolist()) if table.ndim == 1 else table.tolist()


def per_group(value: Any, names: Sequence[str], what: str) -> Array:
    """What `checked_per_group` made, as one number per group."""
    if is_named(value):
        given = dict(value)
        for name in given:
            if name not in names:
                raise BadInput(f"{what} names an unknown group {name!r}{nearest(name, names)}")
        missing = [name for name in names if name not in given]
        if missing:
            raise BadInput(f"{what} by group must name every group; {missing[0]!r} is missing.")
        return np.array([given[name] for name in names])
    table = np.asarray(value, dtype=float)
    if table.ndim == 1 and table.size != len(names):
        raise BadInput(f"{what} must have one number per group, {len(names)}; it has {table.size}.")
    return np.broadcast_to(table, (len(names),)).copy()


def written(value: Any) -> Any:
    """What `checked_per_group` made, as a study file holds it."""
    if is_named(value):
        return dict(value)
    return list(value) if isinstance(value, tuple) else float(value)


def cells_by_name(table: Mapping[str, Any], policies: Sequence[str], groups: Sequence[str], what: str) -> Any:
    """A row per policy from a table by policy name whose rows are lists, or tables by group name."""
    _refuse_unknown(table, policies, what, "policy")
    missing = [name for name in policies if name not in table]
    if missing:
        raise BadInput(f"{what} by name must have a row for every policy; {missing[0]!r} has none.")
    return [_row(table[name], groups, f"{what} of {name!r}") for name in policies]


def cost_table(costs: Any, policies: Sequence[str], groups: Sequence[str]) -> Array:
    """The price of one sample in every cell, K x L; by name, who is not named costs 1."""
    if isinstance(costs, Mapping):
        return _named_costs(costs, policies, groups)
    shape = (len(policies), len(groups))
    try:
        table = np.asarray(costs, dtype=float)
    except (TypeError, ValueError):
        table = np.zeros(0)
    if table.ndim == 1 and table.size in shape and shape[0] == shape[1]:
        raise BadInput(
            f"a list of {table.size} costs could be by policy or by group; give a table by name, or a row "
            "per policy."
        )
    if table.shape == (shape[0],):
        table = table[:, None]
    if table.shape in ((), (shape[1],), (shape[0], 1)):
        table = np.broadcast_to(table, shape)
    if table.shape != shape or not np.all(np.isfinite(table)) or not np.all(table > 0):
        raise BadInput(
            f"costs must be positive numbers, a row per policy, {shape[0]} x {shape[1]}, or a table by "
            f"policy or by group; they are {costs!r}."
        )
    return np.array(table)


def _named_costs(costs: Mapping[str, Any], policies: Sequence[str], groups: Sequence[str]) -> Array:
    """Costs by policy, by group, or by policy and group."""
    known = (*policies, *groups)
    _refuse_unknown(costs, known, "costs", "policy or group")
    both = [name for name in costs if name in policies and name in groups]
    if both:
        raise BadInput(f"{both[0]!r} is both a policy and a group; give costs with a row per policy.")
    table = np.ones((len(policies), len(groups)))
    by_policy = [name in policies for name in costs]
    if any(by_policy) and not all(by_policy):
        raise BadInput("costs by name must name policies only or groups only; these name both.")
    for name, price in costs.items():
        if name in groups:
            table[:, list(groups).index(name)] = _price(price, name)
        elif isinstance(price, Mapping):
            _refuse_unknown(price, groups, f"costs of {name!r}", "group")
            for group, one in price.items():
                table[list(policies).index(name), list(groups).index(group)] = _price(one, f"{name}, {group}")
        else:
            table[list(policies).index(name)] = _price(price, name)
    return table


def _price(value: Any, name: str) -> float:
    if not is_number(value) or value <= 0:
        raise BadInput(f"costs must be positive finite numbers; {name!r} has {value!r}.")
    return float(value)


def _row(row: Any, groups: Sequence[str], what: str) -> Any:
    if not isinstance(row, Mapping):
        return row
    _refuse_unknown(row, groups, what, "group")
    missing = [name for name in groups if name not in row]
    if missing:
        raise BadInput(f"{what} must have a number for every group; {missing[0]!r} has none.")
    return [row[name] for name in groups]


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str], what: str, kind: str) -> None:
    for name in table:
        if name not in known:
            raise BadInput(f"{what}: there is no {kind} {name!r}{nearest(str(name), known)}")


def is_named(value: Any) -> bool:
    """Pairs (name, number), as `checked_per_group` keeps a table by name."""
    return (
        isinstance(value, tuple)
        and len(value) > 0
        and isinstance(value[0], tuple)
        and isinstance(value[0][0], str)
    )

"""Bounds relative to a control policy: checks of user input, and conversion to unit scale.

With the ratio r and the margin m of a group, a floor requires m_k >= r m_control - m, a cap
m_k <= r m_control + m, of every policy k but the control. With a margin the ratio is 1, with a ratio the
margin is 0.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest, shown
from evenhand.model import region as regions
from evenhand.model.argument_checks import Scale, in_words
from evenhand.model.labels import checked_bounds, checked_per_group, per_group
from evenhand.model.region import Region

Array = NDArray[np.float64]

# the families for which a pair of cells is a convex problem
FAMILIES = ("gaussian", "gaussian-unknown", "bernoulli", "binomial", "bounded", "poisson")


class Phrases(NamedTuple):
    """How a bound relative to a control is described."""

    ratio: str
    equal: str  # a margin of 0
    better: str  # a negative margin: better than the control in every group
    worse: str


FLOOR_PHRASES = Phrases(
    "reach {number} times the mean of {control} in every group",
    "reach the mean of {control} in every group",
    "exceed the mean of {control} by {number} in every group",
    "fall no more than {number} below {control} in any group",
)
CAP_PHRASES = Phrases(
    "stay at or below {number} times the mean of {control} in every group",
    "stay at or below the mean of {control} in every group",
    "stay below the mean of {control} by {number} in every group",
    "exceed {control} by no more than {number} in any group",
)


def checked(
    kind: str, name: str, bound: Any, relative_to: Any, margin: Any, ratio: Any
) -> tuple[Any, Any, Any]:
    """Return bound, margin and ratio of floors or caps, frozen: either absolute or relative."""
    if relative_to is None:
        if bound is None:
            raise BadInput(f"the {kind!r} constraint needs {name}, or relative_to with a margin or a ratio.")
        if margin is not None or ratio is not None:
            raise BadInput(
                f"a margin or ratio needs relative_to, the control policy; the {kind!r} constraint has none."
            )
        return checked_bounds(bound, name), None, None
    if not isinstance(relative_to, str):
        raise BadInput(f"relative_to must be the name of a policy; it is {shown(relative_to)}.")
    if bound is not None:
        raise BadInput(f"{kind} are absolute ({name}) or relative_to a policy, not both; join two by 'all'.")
    if margin is not None and ratio is not None:
        raise BadInput(f"{kind} relative to a policy take a margin or a ratio, not both.")
    if ratio is None:
        return None, checked_per_group(0.0 if margin is None else margin, "margin"), None
    ratio = checked_per_group(ratio, "ratio")
    if min(_numbers(ratio)) <= 0:
        raise BadInput(f"ratio must be positive in every group; it is {in_words(tuple(_numbers(ratio)))}.")
    return None, None, ratio


def region(relative_to: str, margin: Any, ratio: Any, sign: float, scale: Scale) -> Region:
    """Return the region of floors (sign 1) or caps (sign -1) relative to a control."""
    control = _control(relative_to, scale)
    if ratio is not None and -math.inf < scale.domain[0] < 0:
        raise BadInput(
            f"a ratio needs means that cannot be negative; these lie in [{scale.domain[0]:g}, "
            f"{scale.domain[1]:g}]. Use a margin."
        )
    ratios = per_group(1.0 if ratio is None else ratio, scale.group_names, "ratio")
    margins = per_group(0.0 if margin is None else margin, scale.group_names, "margin")
    if np.any(np.abs(margins) >= scale.domain[1] - scale.domain[0]):
        raise BadInput(
            f"a margin must be smaller than the range of the means, {scale.domain[1] - scale.domain[0]:g}; "
            f"one is {margins[np.argmax(np.abs(margins))]:g}."
        )
    # low + width p >= r (low + width p') - m  <=>  p >= r p' - (m + (1 - r) low) / width; caps likewise
    unit = (margins + sign * (1.0 - ratios) * scale.low) / scale.width
    side = "floor" if sign > 0 else "cap"
    parts = {f"{side}_ratio": ratios, f"{side}_margin": unit}
    return regions.region(regions.RELATIVE, scale.groups, scale.policies, control=control, **parts)


def joined(parts: list[Region], lo: Array | None, hi: Array | None, scale: Scale) -> Region:
    """Return the region of relative floors and caps together, within the box of lo and hi."""
    if len({part.control for part in parts}) > 1:
        raise BadInput(
            "floors and caps relative to a policy must name the same one everywhere; these name two."
        )
    floors = [part for part in parts if np.isfinite(part.floor_margin).any()]
    caps = [part for part in parts if np.isfinite(part.cap_margin).any()]
    if len(floors) > 1 or len(caps) > 1:
        raise BadInput("'all' takes at most one relative floor and one relative cap; it got two of a kind.")
    found: dict[str, Any] = {"control": parts[0].control}
    if lo is not None and hi is not None:
        found |= {"lo": lo, "hi": hi}
    if floors:
        found |= {"floor_ratio": floors[0].floor_ratio, "floor_margin": floors[0].floor_margin}
    if caps:
        found |= {"cap_ratio": caps[0].cap_ratio, "cap_margin": caps[0].cap_margin}
    whole = regions.region(regions.RELATIVE, scale.groups, scale.policies, **found)
    _check_nonempty(whole, scale)
    return whole


def describe_floors(relative_to: str, margin: Any, ratio: Any) -> str:
    """Describe relative floors, as the end of 'every policy must ...'."""
    return _described(FLOOR_PHRASES, relative_to, margin, ratio)


def describe_caps(relative_to: str, margin: Any, ratio: Any) -> str:
    """Describe relative caps, as the end of 'every policy must ...'."""
    return _described(CAP_PHRASES, relative_to, margin, ratio)


def _described(phrases: Phrases, control: str, margin: Any, ratio: Any) -> str:
    if ratio is not None:
        return phrases.ratio.format(number=in_words(_words(ratio)), control=control)
    numbers = _numbers(margin)
    if max(numbers) == min(numbers) == 0:
        return phrases.equal.format(control=control)
    if max(numbers) <= 0:
        return phrases.better.format(number=in_words(tuple(-number for number in numbers)), control=control)
    return phrases.worse.format(number=in_words(_words(margin)), control=control)


def _control(name: str, scale: Scale) -> int:
    if scale.family not in FAMILIES:
        raise BadInput(
            f"floors and caps relative to a policy need one of the families {', '.join(FAMILIES)}; the "
            f"family is {scale.family}, whose divergence is not convex."
        )
    if name not in scale.policy_names:
        raise BadInput(
            f"relative_to must name one of the policies; it is {name!r}{nearest(name, scale.policy_names)}"
        )
    return scale.policy_names.index(name)


def _check_nonempty(r: Region, scale: Scale) -> None:
    """Refuse relative floors on or above the relative caps at every mean of the control."""
    ends = [(edge - scale.low) / scale.width for edge in scale.domain]
    possible = np.zeros(scale.groups, dtype=bool)
    for end in ends:  # both bounds are linear in the control's mean: it is enough to check the ends
        control = min(max(end, -1e9), 1e9)
        possible |= r.floor_ratio * control - r.floor_margin < r.cap_ratio * control + r.cap_margin
    if not possible.all():
        raise BadInput(
            "relative floors must lie below the relative caps in every group; somewhere they do not."
        )


def _numbers(value: Any) -> list[float]:
    """Return all numbers of a checked margin or ratio."""
    if isinstance(value, tuple):
        return [part[1] if isinstance(part, tuple) else part for part in value]
    return [value]


def _words(value: Any) -> Any:
    """Return a checked margin or ratio in the form that `in_words` takes."""
    return tuple(_numbers(value)) if isinstance(value, tuple) else value

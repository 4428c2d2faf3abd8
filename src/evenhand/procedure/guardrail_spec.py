"""Guard-rails of a problem as arrays for the kernels.

All guard-rails share one region kind: bounds, relative to the control where one of them is. The code of a
family is compiled only if a guard-rail has it; which one it is, is looked up at run time, so that one program
serves any number of guard-rails.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, Static
from evenhand.model.families import GaussianUnknown
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, RELATIVE
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON

Array = NDArray[np.float64]
PerMetric = Annotated[Array, Axes("M")]
PerMetricGroup = Annotated[Array, Axes("M", "L")]
PerMetricCell = Annotated[Array, Axes("M", "L", "K")]


class GuardrailSpec(NamedTuple):
    """The families and requirements of M guard-rails, in unit scale; M = 0 where there are none."""

    present: Static[bool]
    kind: Static[int]  # BOX, or RELATIVE where a bound is relative to the control
    # which families occur
    has_gaussian: Static[bool]
    has_unknown_variance: Static[bool]
    has_bernoulli: Static[bool]
    has_poisson: Static[bool]
    has_exponential: Static[bool]
    code: Annotated[NDArray[np.int64], Axes("M")]
    unknown_variance: Annotated[NDArray[np.bool_], Axes("M")]
    phi: PerMetricCell
    lo: PerMetricCell  # -inf where there is no floor
    hi: PerMetricCell  # +inf where there is no cap
    control: int  # the policy that relative bounds refer to; -1 where there are none
    floor_ratio: PerMetricGroup
    floor_margin: PerMetricGroup  # +inf where there is no relative floor
    cap_ratio: PerMetricGroup
    cap_margin: PerMetricGroup  # +inf where there is no relative cap
    resolution: PerMetricCell


def compile_guardrails(problem: Problem) -> GuardrailSpec:
    """Return the guard-rails of a problem for the kernels."""
    standards = problem.standards[1:]
    regions = [one.region for one in standards]
    codes = np.array([one.code for one in standards], dtype=np.int64)
    unknown = np.array([isinstance(rail.family, GaussianUnknown) for rail in problem.guardrails], dtype=bool)
    relative = any(one.kind == RELATIVE for one in regions)
    policies, groups = problem.shape
    return GuardrailSpec(
        present=bool(standards),
        kind=RELATIVE if relative else BOX,
        has_gaussian=bool(np.any((codes == GAUSSIAN) & ~unknown)),
        has_unknown_variance=bool(np.any(unknown)),
        has_bernoulli=bool(np.any(codes == BERNOULLI)),
        has_poisson=bool(np.any(codes == POISSON)),
        has_exponential=bool(np.any(codes == EXPONENTIAL)),
        code=codes,
        unknown_variance=unknown,
        phi=_stacked([one.phi for one in standards], groups, policies),
        lo=_stacked([one.lo for one in regions], groups, policies),
        hi=_stacked([one.hi for one in regions], groups, policies),
        control=max([-1, *(one.control for one in regions)]),
        floor_ratio=_stacked([one.floor_ratio for one in regions], groups),
        floor_margin=_stacked([one.floor_margin for one in regions], groups),
        cap_ratio=_stacked([one.cap_ratio for one in regions], groups),
        cap_margin=_stacked([one.cap_margin for one in regions], groups),
        resolution=_stacked([one.resolution for one in regions], groups, policies),
    )


def _stacked(tables: list[Array], *shape: int) -> Array:
    """Return the tables as one array, with an axis for the guard-rails in front."""
    return np.array(tables, dtype=float).reshape((len(tables), *shape))

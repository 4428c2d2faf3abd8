"""Evidence by requirement: atoms averaged when k is to fail, each on its own when i is to meet them."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy import special

from evenhand.model.families import Bernoulli, Gaussian
from evenhand.model.requirements import (
    All,
    Caps,
    Dispersion,
    Floors,
    Gap,
    NoConstraint,
    Penalty,
    Polyhedron,
    Quota,
)
from evenhand.procedure.evidence import by_family, certified
from evenhand.procedure.log_space import NOTHING, add
from tests.crossed import crossed
from tests.procedure.stopping.counts import counted, recorded, spec_of
from tests.procedure.stopping.nulls import FAMILIES, REQUIREMENTS

SHARES = [0.2, 0.3, 0.5]
N = np.array([[40.0, 60], [50, 30], [70, 90]])
MEANS = np.array([[0.7, 0.3], [0.6, 0.5], [0.8, 0.6]])
OUTCOMES = {
    "gaussian": st.floats(-3, 3),
    "gaussian-unknown": st.floats(-3, 3),
    "bernoulli": st.sampled_from([0.0, 1.0]),
    "binomial": st.sampled_from([0.0, 1 / 3, 2 / 3, 1.0]),
    "poisson": st.integers(0, 9).map(float),
    "exponential": st.floats(1e-3, 9),
    "gamma": st.floats(1e-3, 9),
    "bounded": st.floats(0, 1),
}


def test_the_threshold_counts_the_wrong_answers() -> None:
    for constraint, wrong in ((Floors(0.5), 5), (Gap(0.2), 5), (NoConstraint(), 4), (Penalty(0.5, 1.0), 4)):
        spec = spec_of(Bernoulli(), SHARES, constraint, policies=5, delta=0.1)
        assert certified.threshold(spec) == pytest.approx(math.log(wrong / 0.1))


def test_floors_and_caps_average_to_fail_and_stand_alone_to_meet() -> None:
    spec = spec_of(Bernoulli(), SHARES, All((Floors(0.5), Caps(0.9))))
    state, work = counted(spec, N, MEANS)
    broken = [by_family.cell_below(spec, state, g, 1, 0.5) for g in range(3)]
    broken += [by_family.cell_above(spec, state, g, 1, 0.9) for g in range(3)]
    assert certified.fails(spec, state, work, 1) == pytest.approx(special.logsumexp(broken) - math.log(6))
    kept = [by_family.cell_above(spec, state, g, 0, 0.5) for g in range(3)]
    kept += [by_family.cell_below(spec, state, g, 0, 0.9) for g in range(3)]
    least, which = certified.meets(spec, state, work, 0)
    assert (least, which) == (min(kept), int(np.argmin(kept)))


def test_no_policy_fails_or_violates_where_nothing_is_required() -> None:
    for constraint in (NoConstraint(), Penalty(0.5, 1.0)):
        spec = spec_of(Bernoulli(), SHARES, constraint)
        state, work = counted(spec, N, MEANS)
        assert certified.fails(spec, state, work, 1) == NOTHING
        assert certified.meets(spec, state, work, 0)[0] == math.inf


def test_a_gap_is_an_atom_per_ordered_pair() -> None:
    spec = spec_of(Gaussian(0.3), SHARES, Gap(0.15))
    state, work = counted(spec, N, MEANS)
    # of policy 1's pairs only 0 below 1, 0 below 2 are too far apart: the others are not asked
    rows = [np.array([1.0, -1, 0]), np.array([1.0, 0, -1])]
    broken = [by_family.row(spec, state, 1, a, -0.15, work.scratch) for a in rows]
    assert certified.fails(spec, state, work, 1) == pytest.approx(special.logsumexp(broken) - math.log(6))
    least, which = certified.meets(spec, state, work, 0)
    assert divmod(which, 3) == (1, 2)  # 0.6 against 0.8: already 0.2 apart
    assert least < 0.0


def test_rows_that_touch_one_cell_are_floors_and_caps() -> None:
    box = spec_of(Bernoulli(), SHARES, Floors(0.5))
    rows = spec_of(Bernoulli(), SHARES, Polyhedron(2 * np.eye(3), [1.0, 1.0, 1.0]))
    state, work = counted(box, N, MEANS)
    assert certified.meets(rows, state, work, 0) == pytest.approx(certified.meets(box, state, work, 0))


@pytest.mark.parametrize("need", [1, 2])
def test_a_quota_is_the_least_over_sets_of_groups(need: int) -> None:
    spec = spec_of(Bernoulli(), SHARES, Quota(0.55, groups=need))
    state, work = counted(spec, N, MEANS)
    below = sorted(by_family.cell_below(spec, state, g, 1, 0.55) for g in range(3))
    assert certified.fails(spec, state, work, 1) == pytest.approx(
        special.logsumexp(below[:need]) - math.log(need)
    )
    above = [by_family.cell_above(spec, state, g, 0, 0.55) for g in range(3)]
    least, which = certified.meets(spec, state, work, 0)
    take = 3 - need + 1
    assert least == pytest.approx(special.logsumexp(sorted(above)[:take]) - math.log(take))
    assert which == int(np.argmin(above))


def test_an_intersection_averages_over_all_its_parts() -> None:
    parts = (Floors(0.55), Gap(0.15), Quota(0.6, groups=2))
    spec = spec_of(Gaussian(0.3), SHARES, All(parts))
    state, work = counted(spec, N, MEANS)
    total, atoms = -math.inf, (3, 6, 1)
    for part, count in zip(parts, atoms, strict=True):
        alone = spec_of(Gaussian(0.3), SHARES, part)
        total = add(total, certified.fails(alone, state, work, 1) + math.log(count))
    # a floor that the estimates keep is left out as a row, counted as a floor
    kept = by_family.cell_below(spec, state, 2, 1, 0.55)
    total = special.logsumexp([total, kept], b=[1, -1])
    assert certified.fails(spec, state, work, 1) == pytest.approx(total - math.log(10))
    alone = [certified.meets(spec_of(Gaussian(0.3), SHARES, part), state, work, 0)[0] for part in parts]
    assert certified.meets(spec, state, work, 0)[0] == pytest.approx(min(alone))


def test_a_bound_outside_the_domain_cannot_be_broken_or_reached() -> None:
    spec = spec_of(Bernoulli(), [1.0])
    state, _ = counted(spec, [[20, 20]], [[0.5, 0.5]])
    assert by_family.cell_above(spec, state, 0, 0, 1.0) == NOTHING
    assert by_family.cell_below(spec, state, 0, 0, 0.0) == NOTHING
    assert by_family.cell_above(spec, state, 0, 0, -0.1) == math.inf
    assert by_family.cell_below(spec, state, 0, 0, 1.1) == math.inf


def test_a_dispersion_is_one_atom_in_both_directions() -> None:
    spec = spec_of(Gaussian(0.1), SHARES, Dispersion(0.01))
    state, work = counted(spec, 10 * N, [[0.5, 0.2], [0.5, 0.5], [0.5, 0.8]])
    assert certified.fails(spec, state, work, 1) > 5.0
    assert certified.meets(spec, state, work, 0)[0] > 5.0
    assert certified.fails(spec, state, work, 0) <= 0.0
    assert certified.meets(spec, state, work, 1)[0] <= 0.0


@crossed("family", FAMILIES, "requirement", [name for name in REQUIREMENTS if name != "quota"])
@hypothesis.settings(max_examples=20)
@hypothesis.given(data=st.data())
def test_evidence_is_never_nan_and_never_minus_infinity(
    family: str, requirement: str, data: st.DataObject
) -> None:
    kind = FAMILIES[family][0]
    spec = spec_of(kind, [0.5, 0.5], REQUIREMENTS[requirement][0])
    told = {(k, g): data.draw(st.lists(OUTCOMES[family], max_size=12)) for k in range(2) for g in range(2)}
    state, work = recorded(spec, told)
    found = [
        certified.ahead(spec, state, work, 0, 1, math.inf),
        certified.fails(spec, state, work, 1),
        certified.meets(spec, state, work, 0)[0],
    ]
    assert all(value > -math.inf for value in found)

"""The functions of Kaufmann and Koolen (2021) at known values; thresholds from a piece's own cells."""

from __future__ import annotations

import math

import pytest
from scipy import optimize, special

from evenhand.model.families import Bernoulli, Gaussian
from evenhand.model.requirements import Floors, Gap, Penalty
from evenhand.procedure.state import NONE
from evenhand.procedure.stopping import kaufmann_koolen as kk
from tests.procedure.stopping.counts import counted, spec_of

C_EXP = [(0.5, 8.014835), (1.0, 9.104517), (2.0, 10.868487), (5.0, 15.191399), (10.0, 21.446819)]
C_GAUSSIAN = [(0.5, 1.964124), (1.0, 2.507095), (2.0, 3.582930), (5.0, 6.757320), (10.0, 11.954646)]


@pytest.mark.parametrize(("x", "value"), C_EXP)
def test_c_exp_has_its_known_values(x: float, value: float) -> None:
    assert kk.c_exp(x) == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize(("x", "value"), C_GAUSSIAN)
def test_c_gaussian_has_its_known_values(x: float, value: float) -> None:
    assert kk.c_gaussian(x) == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize("x", [0.01, 0.7, 3.0, 40.0, 1e4])
def test_c_gaussian_is_the_least_over_lambda(x: float) -> None:
    def objective(lam: float) -> float:
        g = 2 * lam - 2 * lam * math.log(4 * lam) + math.log(special.zeta(2 * lam)) - math.log(1 - lam) / 2
        return (g + x) / lam

    found = optimize.minimize_scalar(
        objective, bounds=(0.5 + 1e-9, 1 - 1e-12), method="bounded", options={"xatol": 1e-10}
    )
    assert kk.c_gaussian(x) == pytest.approx(found.fun, rel=1e-6)


@pytest.mark.parametrize("x", [1.0 + 1e-9, 1.3, 2.0, 17.0, 1e6])
def test_h_inverse_undoes_u_minus_its_log(x: float) -> None:
    u = kk.h_inverse(x)
    assert u >= 1.0
    assert u - math.log(u) == pytest.approx(x, rel=1e-14)


@pytest.mark.parametrize("x", [1.3, 2.0, 17.0])
def test_h_inverse_is_the_lower_branch_of_lamberts_function(x: float) -> None:
    assert kk.h_inverse(x) == pytest.approx(-special.lambertw(-math.exp(-x), k=-1).real, rel=1e-12)


def test_h_inverse_at_two() -> None:
    assert kk.h_inverse(2.0) == pytest.approx(3.146193, abs=5e-7)


def test_h_tilde_is_continuous_where_its_two_forms_meet() -> None:
    z = 1.5
    switch = 1 / math.log(z) - math.log(1 / math.log(z))
    assert switch == pytest.approx(1.56358, abs=1e-5)
    assert kk.h_tilde(switch - 1e-9, z) == pytest.approx(kk.h_tilde(switch + 1e-9, z), rel=1e-8)


def test_a_pair_is_charged_for_its_own_cells_only() -> None:
    spec = spec_of(Gaussian(0.5), [0.5, 0.5], Floors(0.0), policies=7, delta=0.1)
    state, _ = counted(spec, [[10] * 7, [20] * 7], [[0.0] * 7] * 2)
    growth = sum(2 * math.log(4 + math.log(n)) for n in (10, 20))
    level = math.log(7 / 0.1)
    assert kk.alternative_threshold(spec, state, 3, 5) == pytest.approx(
        2 * growth + 4 * kk.c_gaussian(level / 4)
    )
    assert kk.alternative_threshold(spec, state, 3, NONE) == pytest.approx(
        growth + 2 * kk.c_gaussian(level / 2)
    )
    # a floor touches one cell; the one sampled most asks for most
    assert kk.leave_threshold(spec, state, 3) == pytest.approx(
        2 * math.log(4 + math.log(20)) + kk.c_gaussian(level)
    )
    assert kk.cell_threshold(spec, state, 0, 3) == pytest.approx(
        2 * math.log(4 + math.log(10)) + kk.c_gaussian(level)
    )


def test_other_families_pay_the_exponential_family_price() -> None:
    spec = spec_of(Bernoulli(), [0.5, 0.5], Gap(0.2), policies=3, delta=0.1)
    state, _ = counted(spec, [[10] * 3, [20] * 3], [[0.5] * 3] * 2)
    growth = sum(3 * math.log(1 + math.log(n)) for n in (10, 20))
    assert kk.leave_threshold(spec, state, 1) == pytest.approx(growth + 2 * kk.c_exp(math.log(30) / 2))


def test_under_a_penalty_none_is_no_wrong_answer() -> None:
    spec = spec_of(Gaussian(1.0), [1.0], Penalty(0.0, 1.0), policies=4, delta=0.1)
    state, _ = counted(spec, [[1] * 4], [[0.0] * 4])
    assert kk.alternative_threshold(spec, state, 0, 1) == pytest.approx(
        4 * math.log(4) + 2 * kk.c_gaussian(math.log(30) / 2)
    )

"""The functions of Kaufmann and Koolen (2021) at known values; thresholds from a piece's own cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special

from evenhand.model.families import Bernoulli, Gaussian, Poisson
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import Problem
from evenhand.model.requirements import Caps, Floors, Gap, Penalty
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.estimates import refresh
from evenhand.procedure.guardrails import enter_guardrail
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import NONE, State, Work, new_state, new_work
from evenhand.procedure.stopping import kaufmann_koolen as kk
from evenhand.procedure.stopping.kaufmann_koolen import strongest_metric, weakest_metric
from evenhand.theory.metrics import METRIC
from tests.compile.plain import run_plain
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


def guarded(rails: tuple[Guardrail, ...]) -> tuple[Spec, State, Work]:
    """Two policies, 40 outcomes in every cell of the outcome and 30 of every guard-rail."""
    asked = Problem(["p0", "p1"], {"x": 0.5, "y": 0.5}, Gaussian(0.5), Floors(0.0), guardrails=rails)
    spec = compile_spec(asked, Procedure(stopping="kaufmann-koolen", delta=0.1))
    state, work = new_state(spec), new_work(spec)
    state.n[:], state.s[:] = 40, 40 * np.array([[1.0, 0.4], [1.0, 0.5]])
    state.rail_n[:] = 30
    state.rail_s[0] = 30 * np.array([[0.1, 0.5], [0.2, 0.3]])
    if len(rails) > 1:
        state.rail_s[1] = 30 * np.array([[1.0, 2.0], [1.0, 1.5]])
    run_plain(refresh, spec, state, work, False)
    return spec, state, work


def test_with_guard_rails_every_metric_has_its_own_threshold() -> None:
    rails = (
        Guardrail("errors", Bernoulli(), Caps(0.3)),
        Guardrail("delay", Poisson(), Caps(relative_to="p0", margin=0.5)),
    )
    spec, state, work = guarded(rails)
    level = math.log(2 / 0.1) + math.log(3)  # one metric of three may refute a rival
    growth, of_rail = 2 * math.log(4 + math.log(40)), 3 * math.log(1 + math.log(30))
    needed = {
        "outcome": 4 * growth + 4 * kk.c_gaussian(level / 4),
        "errors": 2 * of_rail + 2 * kk.c_exp(level / 2),
        "delay": 4 * of_rail + 4 * kk.c_exp(level / 4),  # the control's cells count too
    }
    ratio = {
        # the overall means lie 0.55 apart: both policies move, in both groups
        "outcome": 0.55**2 / (2 * 2 * 0.5 * 0.5**2 / 40),
        "errors": 30 * (0.5 * math.log(0.5 / 0.3) + 0.5 * math.log(0.5 / 0.7)),
        "delay": run_plain(enter_guardrail, spec, work, 1, 1),
    }
    best = max(needed, key=lambda metric: ratio[metric] - needed[metric])
    value, bar = run_plain(strongest_metric, spec, state, work, 0, 1)
    assert best == "outcome"
    assert (value, bar) == (pytest.approx(ratio[best]), pytest.approx(needed[best]))
    # that the leader's guard-rail is kept concerns one metric: nothing is divided
    value, bar, which = run_plain(weakest_metric, spec, state, work, spec.kept, 0)
    assert which == METRIC + 3  # the cap on errors in the second group
    assert value == pytest.approx(30 * (0.2 * math.log(0.2 / 0.3) + 0.8 * math.log(0.8 / 0.7)))
    assert bar == pytest.approx(2 * of_rail + 2 * kk.c_exp(math.log(2 / 0.1) / 2))


def test_ratios_of_metrics_are_never_added() -> None:
    """A copy of a guard-rail must not make the evidence larger: outcomes of a sample may depend."""
    rail = Guardrail("errors", Bernoulli(), Caps(0.3))
    spec, state, work = guarded((rail,))
    twice, state_2, work_2 = guarded((rail, Guardrail("copy", Bernoulli(), Caps(0.3))))
    state_2.rail_s[1] = state_2.rail_s[0]
    run_plain(refresh, twice, state_2, work_2, False)
    once, bar = run_plain(strongest_metric, spec, state, work, NONE, 1)
    again, bar_2 = run_plain(strongest_metric, twice, state_2, work_2, NONE, 1)
    assert once == again
    assert bar_2 > bar

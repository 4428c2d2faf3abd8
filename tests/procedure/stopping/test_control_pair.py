"""Evidence beside a control: against a minimum found by SciPy, and on the boundary of every null."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import minimize_scalar

from evenhand.model.families import Bernoulli, Gaussian, GaussianUnknown, Poisson
from evenhand.model.problem import Problem
from evenhand.model.requirements import All, Caps, Floors
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.evidence import certified, control_pair
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import new_work
from tests.procedure.stopping.counts import counted, recorded
from tests.procedure.stopping.nulls import BESIDE_CONTROL, crossings, is_too_often

Array = NDArray[np.float64]

FAMILIES = ("gaussian", "gaussian-unknown", "bernoulli", "binomial", "poisson", "bounded")
counts = st.integers(1, 2000)
means = st.floats(0.05, 0.95)


def spec_of(family: object, ratio: float = 1.0, groups: int = 1, **procedure: object) -> Spec:
    shares = {f"g{g}": 1.0 / groups for g in range(groups)}
    floors = Floors(relative_to="control", ratio=ratio)
    return compile_spec(Problem(["control", "k"], shares, family, floors), Procedure(**procedure))  # type: ignore[arg-type]


def gaussian(n: float, mean: float, lam: Array, up: float, sd: float) -> Array:
    """ln of the mixture over shifts |xi| / 2 + N(0, 1/2000) in the direction `up`, by its own formula."""
    n0, n1 = 4.0, 2000.0
    x = up * (mean - lam) / sd
    rho, kappa = n1 * n / (n + n1), n * n / (n + n1)
    z = rho / math.sqrt(n0 + rho) * x
    psi = z * z / 2 + math.log(2) + special.log_ndtr(z)
    return np.asarray(kappa * x * x / 2 + psi - 0.5 * math.log1p(n / n1) - 0.5 * math.log1p(rho / n0))


def tilted(code: str, n: Array, s: Array, lam: Array, up: Array) -> float:
    """ln of the mean over sizes of the products over both cells, as the formulas say."""
    sizes = 0.02 * 1.8 ** np.arange(8) if code == "bernoulli" else 0.01 * 2.0 ** np.arange(8)
    total = np.zeros(8)
    for j in range(2):
        terms = []
        for times, weight in ((0, 0.25), (1, 0.5), (2, 0.25)):
            tau = up[j] * times * sizes
            cumulant = np.log1p(lam[j] * np.expm1(tau)) if code == "bernoulli" else lam[j] * np.expm1(tau)
            terms.append(np.log(weight) + tau * s[j] - n[j] * cumulant)
        total += special.logsumexp(terms, axis=0)
    return float(special.logsumexp(total) - math.log(8))


@hypothesis.given(counts, counts, means, means, st.floats(0.5, 1.5), st.floats(-0.3, 0.3))
def test_gaussian_evidence_is_the_least_over_the_null(
    n: int, n_0: int, mean: float, mean_0: float, ratio: float, c: float
) -> None:
    spec = spec_of(Gaussian(0.5))
    state, work = counted(spec, [[n_0, n]], [[mean_0, mean]])
    found = control_pair.against(spec, state, 0, 0, 1, 1.0, ratio, c, work.scratch)

    def value(z: float) -> float:  # on the null's edge y = ratio z + c; the null asks for more of y
        one = gaussian(n, mean, np.array(ratio * z + c), -1.0, 0.5)
        return float(one + gaussian(n_0, mean_0, np.array(z), 1.0, 0.5))

    width = 20 / math.sqrt(min(n, n_0)) + abs(mean - ratio * mean_0 - c) / ratio
    least = minimize_scalar(
        value, bounds=(mean_0 - width, mean_0 + width), method="bounded", options={"xatol": 1e-10}
    )
    assert found <= least.fun + 1e-7
    if mean - ratio * mean_0 < c:  # else the null holds the estimates, and the least lies inside it
        assert found == pytest.approx(least.fun, abs=1e-3)


@pytest.mark.parametrize("code", ["bernoulli", "poisson"])
@hypothesis.settings(max_examples=40)
@hypothesis.given(counts, counts, means, means, st.floats(0.0, 0.3))
def test_evidence_by_tilts_is_the_least_over_the_null(
    code: str, n: int, n_0: int, mean: float, mean_0: float, margin: float
) -> None:
    spec = spec_of(Bernoulli() if code == "bernoulli" else Poisson())
    n, n_0 = 20 * n, 20 * n_0
    state, work = counted(spec, [[n_0, n]], [[mean_0, mean]])
    found = control_pair.against(spec, state, 0, 0, 1, -1.0, 1.0, margin, work.scratch)
    hypothesis.assume(mean > mean_0 - margin)  # the null is mu_k <= mu_0 - margin
    counted_n, sums = np.array([n, n_0], dtype=float), np.array([n * mean, n_0 * mean_0])

    def value(z: float) -> float:
        return tilted(code, counted_n, sums, np.array([z - margin, z]), np.array([1.0, -1.0]))

    top = 1.0 if code == "bernoulli" else 3.0
    least = minimize_scalar(value, bounds=(margin, top), method="bounded", options={"xatol": 1e-9}).fun
    if found < 40.0:  # beyond, the search ends early: so much is never needed
        assert found <= least + 1e-6 * max(1.0, abs(least))
    assert found >= min(least, certified.threshold(spec)) - 0.05 * (1.0 + abs(least)) or least < 0.5


def test_unknown_variances_cost_evidence_and_nothing_is_gained() -> None:
    random = np.random.default_rng(3)
    outcomes = {(0, 0): random.normal(0.3, 0.5, 400), (1, 0): random.normal(0.6, 0.5, 400)}
    known, unknown = spec_of(Gaussian(0.5), delta=1e-6), spec_of(GaussianUnknown(), delta=1e-6)
    found = []
    for spec in (known, unknown):
        state, work = recorded(spec, outcomes)
        found.append(control_pair.against(spec, state, 0, 0, 1, -1.0, 1.0, 0.0, work.scratch))
    assert 3.0 < found[1] < found[0]


def test_a_policy_fails_by_the_average_of_its_bounds_and_the_control_never_does() -> None:
    both = All((Floors(0.2), Floors(relative_to="a", margin=0.1), Caps(relative_to="a", margin=0.4)))
    problem = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Gaussian(0.5), both)
    spec = compile_spec(problem, Procedure())
    state, work = counted(spec, [[50, 60], [70, 80]], [[0.5, 0.1], [0.5, 1.2]])
    bounds = [
        certified.cell_below(spec, state, g, 1, 0.2) for g in range(2)
    ] + [
        control_pair.against(spec, state, 0, g, 1, sign, 1.0, c, work.scratch)
        for g in range(2)
        for sign, c in ((1.0, -0.1), (-1.0, -0.4))
    ]  # fmt: skip
    # bounds that the estimates keep are not weighed: their e-values are next to nothing
    expected = special.logsumexp(
        [max(bound, NOTHING) for bound in (bounds[0], bounds[1], bounds[2], bounds[5])]
    )
    assert certified.fails(spec, state, work, 1) == pytest.approx(expected - math.log(6), abs=1e-9)
    alone = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Gaussian(0.5), Floors(relative_to="a", margin=0.1))
    spec = compile_spec(alone, Procedure())
    assert certified.fails(spec, state, new_work(spec), 0) == NOTHING
    assert certified.meets(spec, state, new_work(spec), 0)[0] == math.inf


QUICK = [("gaussian", "floors, the control is b"), ("bernoulli", "floors and floors beside a control")]
EVERY = [(family, requirement) for family in FAMILIES for requirement in BESIDE_CONTROL]


@pytest.mark.parametrize(
    ("family", "requirement"),
    [pair if pair in QUICK else pytest.param(*pair, marks=pytest.mark.slow) for pair in EVERY],
)
def test_an_e_value_beside_a_control_rarely_exceeds_what_it_may(family: str, requirement: str) -> None:
    quick = (family, requirement) in QUICK
    found = crossings(family, requirement, runs=150 if quick else 1500, horizon=100 if quick else 800, seed=7)
    assert not is_too_often(found.fails, found.runs)
    assert not is_too_often(found.meets, found.runs)

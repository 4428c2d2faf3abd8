"""Evidence grows with the data at any counts: for every family and requirement, however small the effect."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import evenhand as eh
from evenhand.model import requirements as c
from evenhand.model.unit_families import BERNOULLI, POISSON
from evenhand.procedure.evidence import by_family, certified, likelihood_mixture, tilts
from evenhand.procedure.evidence.tilt_minimum import least
from evenhand.procedure.evidence.tilt_mixture import Cells
from evenhand.procedure.intervals import cell_interval
from evenhand.procedure.spec import FIRST_EVIDENCE, Spec
from evenhand.verdicts.judge import judge_state
from tests.crossed import crossed
from tests.procedure.stopping.counts import spec_of, state_with_counts
from tests.procedure.stopping.nulls import FAMILIES, scaled
from tests.reference import tilt_minimum

Array = NDArray[np.float64]
SHARES = [0.4, 0.35, 0.25]
COUNTS = 10.0 ** np.arange(2, 10)


def effects(d: float) -> dict[str, tuple[c.Constraint, list[list[float]]]]:
    """Requirements, with means (K x L) that the first policy keeps and the second breaks by d, or about d."""
    # means 1/2 - x, 1/2, 1/2 + x have average 1/2 - 0.15 x: their dispersion is 2.0675 x^2, the limit at 0.1
    wide, narrow, limit = 0.1 + d, 0.1 - d, 0.020675
    return {
        "none": (c.NoConstraint(), [[0.4 + d, 0.6 + d, 0.5 + d], [0.4, 0.6, 0.5]]),
        "floors": (c.Floors(0.4), [[0.4 + d, 0.6, 0.5], [0.4 - d, 0.6, 0.5]]),
        "caps": (c.Caps(0.6), [[0.4, 0.6 - d, 0.5], [0.4, 0.6 + d, 0.5]]),
        "gap": (c.Gap(0.2), [[0.4 + d, 0.6, 0.5], [0.4 - d, 0.6, 0.5]]),
        "ratio": (c.Ratio(0.4 / 0.6), [[0.4 + d, 0.6, 0.5], [0.4 - d, 0.6, 0.5]]),
        "quota": (c.Quota(0.5, groups=2), [[0.5 + d, 0.5 + d, 0.3], [0.5 - d, 0.5 - d, 0.3]]),
        "dispersion": (
            c.Dispersion(limit),
            [[0.5 - narrow, 0.5, 0.5 + narrow], [0.5 - wide, 0.5, 0.5 + wide]],
        ),
        "polyhedron": (
            c.Polyhedron([[1.0, -1.0, 0.0], [2.0, 1.0, 0.1]], [-0.2, 1.45]),
            [[0.4 + d, 0.6, 0.5], [0.4 - d, 0.6, 0.5]],
        ),
        "all": (
            c.All((c.Floors(0.4), c.Gap(0.2), c.Quota(0.6, groups=1))),
            [[0.4 + 2 * d, 0.6 + d, 0.5], [0.4 - 2 * d, 0.6 - d, 0.5]],
        ),
        "all with dispersion": (
            c.All((c.Caps(0.7), c.Dispersion(limit))),
            [[0.5 - narrow, 0.5, 0.5 + narrow], [0.5 - wide, 0.5, 0.5 + wide]],
        ),
        "penalty": (c.Penalty(0.5, 2.0), [[0.4 + d, 0.6 + d, 0.5 + d], [0.4, 0.6, 0.5]]),
    }


def found(spec: Spec, means: Array, n: float) -> dict[str, float]:
    """What is certified of the first policy, and against the second, with n outcomes in every cell."""
    state, work = state_with_counts(spec, n, means)
    if spec.region.rows.size == 0 and certified.meets(spec, state, work, 0)[0] == math.inf:
        return {"ahead": certified.ahead(spec, state, work, 0, 1, math.inf)}
    return {
        "fails": certified.fails(spec, state, work, 1),
        "meets": certified.meets(spec, state, work, 0)[0],
    }


@pytest.mark.parametrize("d", [0.05, 0.02, 0.004, 0.0007])
@crossed("family", FAMILIES, "requirement", effects(0.05))
def test_ten_times_the_data_never_lowers_the_evidence_of_a_clear_comparison(
    family: str, requirement: str, d: float
) -> None:
    outcome, _, number = FAMILIES[family]
    by = number if family == "binomial" else 1.0  # its means count successes
    constraint, means = effects(d)[requirement]
    spec = spec_of(outcome, SHARES, scaled(constraint, by))
    unit = outcome.to_unit(by * np.array(means)).T
    needed = certified.threshold(spec)
    grown = [found(spec, unit, n) for n in COUNTS]
    for what in grown[0]:
        values = np.array([each[what] for each in grown])
        clear = values >= needed
        assert np.all(np.diff(clear.astype(int)) >= 0), (what, values)  # once clear, clear with more
        # ceilings (`atom_ceiling`) end the growth; what else is averaged may still fall below them
        assert np.all(np.diff(values[clear]) >= -1e-3), (what, values)
        # a million in each cell shows 0.05, a billion shows 0.0007: 20 standard errors and more
        assert clear[-1], (what, values)
        assert clear[4] or d < 0.02, (what, values)


POLICIES = {
    "a": (0.62, 0.60, 0.61),
    "b": (0.60, 0.61, 0.60),
    "c": (0.70, 0.50, 0.65),
    "d": (0.55, 0.56, 0.57),
}


@pytest.mark.parametrize(
    ("family", "first"),
    [
        (eh.Bernoulli(), 100_000),
        (eh.Bounded(0.0, 1.0), 100_000),
        (eh.Binomial(4), 100_000),
        (eh.Poisson(), 300_000),
        (eh.Gaussian(0.5), 300_000),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_four_policies_in_three_groups_stay_decided_as_the_counts_grow(
    family: eh.Bernoulli, first: int
) -> None:
    by = 4.0 if family.name == "binomial" else 1.0
    problem = eh.Problem(list(POLICIES), {"x": 0.4, "y": 0.3, "z": 0.3}, family, eh.Floors(0.55 * by))
    before = -math.inf
    for n in (first, 833_333, 3_000_000, 10**7, 10**8, 10**9):
        rows = [(k, g, n, m * by) for k, means in POLICIES.items() for g, m in zip("xyz", means, strict=True)]
        frame = pl.DataFrame(rows, schema=["policy", "group", "n", "mean"], orient="row")
        verdict = eh.judge(problem, frame, delta=0.05, replications=0)
        assert verdict.decided
        assert (verdict.answer, verdict.weakest) == ("a", "a against b")
        assert verdict.evidence >= before
        before = verdict.evidence


def a_pair(family: str, n: float, d: float) -> tuple[Array, Array, Array]:
    """Normal vector, counts and sums of {q.mu_k >= q.mu_i} with i ahead by d, in two groups."""
    a = np.array([-0.6, -0.4, 0.6, 0.4])
    counts = np.round(n * np.array([1.0, 1.7, 0.8, 1.2]))
    means = np.array([0.50, 0.62, 0.50, 0.62]) + np.array([d, d, 0.0, 0.0])
    return a, counts, np.round(counts * means * (1.0 if family == "bernoulli" else 3.0))


CODES = {"bernoulli": BERNOULLI, "poisson": POISSON}


@pytest.mark.parametrize(
    "n", [pytest.param(n, marks=() if n in (1e2, 1e4, 1e6, 1e9) else pytest.mark.slow) for n in COUNTS]
)
@pytest.mark.parametrize("d", [0.2, 0.012])
@pytest.mark.parametrize("family", CODES)
def test_the_bound_is_below_the_minimum_in_60_digits_and_near_it(family: str, d: float, n: float) -> None:
    a, counts, sums = a_pair(family, n, d)
    exact = tilt_minimum.least(family, [[0, 1], [2, 3]], a, counts, sums, 0.0)
    bound, value = least(Cells(CODES[family], 2, a, counts, sums), 0.0, math.inf, np.zeros(2000))
    assert bound <= exact
    assert bound >= exact - 1e-5 * max(abs(exact), 1.0)
    # a little is taken off Poisson's (`tilt_mixture.slack`), about 1e-8 and 1e-14 of the counts
    assert value == pytest.approx(exact, rel=1e-9, abs=1e-6)
    # what is used: the first search's bound where that converged, within its rounding error
    used, _ = tilts.half_space(Cells(CODES[family], 2, a, counts, sums), 0.0, math.inf, 2, np.zeros(2000))
    assert exact - 0.11 * max(exact, 0.0) - 1e-5 <= used <= exact + 1e-9 * max(abs(exact), 1.0)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("family", CODES)
def test_random_half_spaces_are_bounded_closely_whatever_the_counts(family: str, seed: int) -> None:
    """Cells sampled a million times more than others, weights of both signs, means near the edges."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 9))
    a = rng.normal(size=m)
    a[:2] = abs(a[0]), -abs(a[1])
    counts = np.round(10 ** rng.uniform(0.5, 12) * np.exp(3 * rng.normal(size=m)) + 1)
    means = rng.uniform(0.01, 0.99, size=m) * (1.0 if family == "bernoulli" else 3.0)
    sums = np.round(counts * means)
    spread = math.sqrt((a**2 * means / counts).sum())
    c_ = float(a @ ((sums + 0.5) / (counts + 1.0)))
    c_ += spread * math.exp(rng.uniform(0.0, math.log(max(2.0, 0.3 / spread))))
    room = np.maximum(a, 0.0).sum() if family == "bernoulli" else math.inf
    if c_ >= room:
        pytest.skip("no means lie in this half-space")
    table = Cells(CODES[family], m, a, counts, sums)
    bound, value = least(table, c_, math.inf, np.zeros(4000))
    assert m * math.log(0.25) - 1e-9 <= bound
    assert -1e-5 * max(abs(value), 1.0) - 1e-13 * counts.sum() <= value - bound
    assert value - bound <= 1e-2 * max(abs(value), 1.0)


def test_the_first_stages_bound_the_whole_by_jensens_inequality() -> None:
    """M(counts) >= M(counts / times)^times: what a stop after an early stage has certified."""
    for family in CODES:
        a, counts, sums = a_pair(family, 1e6, 0.05)
        whole, _ = least(Cells(CODES[family], 2, a, counts, sums), 0.0, math.inf, np.zeros(2000))
        for enough in (10.0, 0.5 * whole):
            early, _ = least(Cells(CODES[family], 2, a, counts, sums), 0.0, enough, np.zeros(2000))
            assert enough < early <= whole


@pytest.mark.parametrize("counts", [1e2, 1e5, 1e9, 1e15])
def test_regrets_keep_their_digits_at_any_counts(counts: float) -> None:
    """Jeffreys' mixtures: 1/2 ln(pi n / 2) and 1/2 ln(n lam / ...) up to terms that vanish."""
    spec = spec_of(eh.Bernoulli(), [1.0])
    state, _ = state_with_counts(spec, [[counts, counts]], [[0.3, 0.5]])
    regret = -likelihood_mixture.cell(
        spec, state, 0, 0, 0.9, 1.0
    )  # the estimate lies in the null: nothing but regret
    assert regret == pytest.approx(0.5 * math.log(0.5 * math.pi * counts), abs=1.0 / counts)
    spec = spec_of(eh.Poisson(), [1.0])
    state, _ = state_with_counts(spec, [[counts, counts]], [[2.0, 0.5]])
    regret = -likelihood_mixture.cell(spec, state, 0, 0, 9.0, 1.0)
    rates = np.array([1.0, 1e-2, 1e-4, 1e-6])
    mixed = np.log(np.mean(np.sqrt(2.0 * rates / counts) * np.exp(-2.0 * rates)))
    assert regret == pytest.approx(-mixed, abs=3.0 / counts + 1e-12)


def test_the_weight_of_the_mixture_over_means_is_lost_in_the_rounding_of_the_rest() -> None:
    weight = math.exp(-tilts.MIXTURE_COST)
    assert weight > 0.0
    assert 1.0 - weight == 1.0


@pytest.mark.parametrize("family", ["bernoulli", "binomial", "poisson", "exponential", "gamma", "bounded"])
def test_a_difference_too_small_for_the_tilts_is_seen_by_the_mixture_over_means(family: str) -> None:
    outcome, _, _ = FAMILIES[family]
    spec = spec_of(outcome, [1.0])
    below, above = [], []
    for n in (1e4, 1e6, 1e8, 1e10):
        state, _ = state_with_counts(spec, [[n, n]], [[0.5004, 0.4996]])
        above.append(by_family.cell_above(spec, state, 0, 0, 0.5))
        below.append(by_family.cell_below(spec, state, 0, 1, 0.5))
        low, high = cell_interval(spec, state, 0, 0)
        # intervals go on shrinking: 20 standard errors hold the evidence that is asked for, and the cost
        assert high - low <= 40.0 / math.sqrt(n)
    ceiling = by_family.atom_ceiling(spec)
    assert above[-1] == below[-1] == ceiling
    assert max(above[0], below[0]) < 0.0
    # by tilts alone ten thousand times the data say the contrary, ever louder
    assert tilts.cell(spec.code, 1e10, 0.5004e10, 0.5, 1.0) < -1e4


def test_experiments_begun_with_the_first_version_keep_its_evidence_to_the_last_bit() -> None:
    spec = spec_of(eh.Bernoulli(), [0.4, 0.3, 0.3])
    means = np.array([[0.62, 0.55], [0.60, 0.56], [0.61, 0.57]])
    first = spec._replace(evidence=FIRST_EVIDENCE)
    for n, recorded in ((1e5, 751.9077133177957), (3e5, -8.317766166719343), (3e6, -8.317766166719343)):
        state, work = state_with_counts(spec, n, means)
        assert certified.ahead(first, state, work, 0, 1, math.inf) == pytest.approx(recorded, rel=1e-12)
        now = certified.ahead(spec, state, work, 0, 1, math.inf)
        assert now == pytest.approx(recorded, rel=1e-12) if n == 1e5 else now > 2000.0
    state, _ = state_with_counts(spec, 1e8, means + 0.4 - means)
    assert (
        by_family.cell_above(first, state, 0, 0, 0.399)
        < -1e3
        < 0.0
        < by_family.cell_above(spec, state, 0, 0, 0.399)
    )


def test_numbers_that_are_none_are_an_error_and_no_lack_of_evidence() -> None:
    for family in (eh.Bernoulli(), eh.Poisson(), eh.Gaussian(1.0), eh.Exponential(), eh.GaussianUnknown()):
        for constraint in (eh.Floors(0.4), eh.Gap(0.2), eh.Dispersion(0.02), eh.Penalty(0.4, 1.0)):
            problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, family, constraint)
            spec = spec_of(family, [0.5, 0.5], constraint)
            state, _ = state_with_counts(spec, 1e3, np.array([[0.6, 0.5], [0.6, 0.5]]))
            state.s[0, 1] = math.nan
            state.bets[:, 1] = math.nan
            with pytest.raises(eh.NotComputed, match="could not be computed"):
                judge_state(problem, eh.Procedure(), state, replications=0)


def test_a_simulation_says_where_evidence_could_not_be_computed() -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Gaussian(1.0))
    procedure = eh.Procedure(max_samples=20)
    with pytest.raises(eh.NotComputed, match=r"evidence in replication [01] could not be computed"):
        eh.simulate(problem, [[1e308, 1e308], [9e307, 9e307]], procedure, replications=2, seed=1)

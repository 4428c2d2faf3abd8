"""Rescaling and shifting outcomes changes nothing but the unit: plan, simulate and judge say the same.

Outcomes x become scale x + shift, and everything that is measured in their unit goes along: sd, floors, caps,
gaps and the ends of a bounded range by `scale` (and `shift`), a dispersion by its square. The Gaussian, known
or not, and bounded outcomes may be rescaled and shifted, the exponential and the gamma rescaled.

By a power of 2 every number keeps its digits, so that decisions must agree to the last sample. By a power of
10, or a shift, rounding errors differ: decisions must agree where they do not hang on an exact tie, and
numbers to the accuracy that is asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import evenhand as eh
from evenhand.errors import BadInput, Undecidable
from evenhand.model.families import Family
from evenhand.model.requirements import Constraint
from evenhand.procedure.spec import SAMPLING
from evenhand.reports.dossier_scenarios import Scenario, scenario_grid
from evenhand.study import Truth
from tests.crossed import crossed

Array = NDArray[np.float64]

GAP = 1e-5  # relative accuracy of the plans
TENS = [10.0**k for k in range(-12, 13)]
FAR_TENS = [1e-12, 1e-5, 1e12]
TWOS = [2.0**-40, 2.0**40]
SHIFTS = [-3.25, 2.0**20]

SD = np.array([[0.4, 0.55], [0.7, 0.65], [0.5, 0.9]])  # all different: equal cells would be tied
MEANS = np.array([[1.625, 1.25], [1.375, 1.75], [0.5, 2.25]])


class World(NamedTuple):
    """A family in the unit of outcomes that scale and shift make."""

    name: str
    scale: float = 1.0
    shift: float = 0.0

    def at(self, x: Any) -> Any:
        """A number on the line of outcomes."""
        return np.asarray(x) * self.scale + self.shift

    def family(self) -> Family:
        if self.name == "gaussian":
            return eh.Gaussian(SD * self.scale)
        if self.name == "gaussian-unknown":
            return eh.GaussianUnknown()
        if self.name == "bounded":
            return eh.Bounded(float(self.at(-1.0)), float(self.at(3.0)))
        return eh.Exponential() if self.name == "exponential" else eh.Gamma(2.5)

    def requirement(self, kind: str) -> Constraint:
        length, rows = self.scale, np.array([[1.0, -0.5], [0.5, 0.5]])
        bounds = self.scale * np.array([0.25, 1.0]) + self.shift * rows.sum(axis=1)
        floor, cap = float(self.at(1.0)), float(self.at(2.0))
        made: dict[str, Constraint] = {
            "none": eh.NoConstraint(),
            "floors": eh.Floors(floor),
            "caps": eh.Caps(cap),
            "gap": eh.Gap(0.75 * length),
            "ratio": eh.Ratio(0.6),
            "quota": eh.Quota(floor, groups=1),
            "dispersion": eh.Dispersion(0.3 * length**2),
            "polyhedron": eh.Polyhedron(rows, bounds),
            "all": eh.All((eh.Floors(float(self.at(0.75))), eh.Dispersion(0.5 * length**2))),
            "penalty": eh.Penalty(floor, 1.5),
        }
        return made[kind]

    def problem(self, kind: str, mode: str = "active") -> eh.Problem:
        groups = {"x": 0.375, "y": 0.625}
        return eh.Problem(["a", "b", "c"], groups, self.family(), self.requirement(kind), mode=mode)

    def truth(self) -> Truth:
        sd = tuple(map(tuple, (SD * self.scale).tolist())) if self.name == "gaussian-unknown" else None
        return Truth(means=tuple(map(tuple, self.at(MEANS).tolist())), sd=sd)

    def frame(self, cells: int = 30) -> pl.DataFrame:
        """Outcomes with few digits, the same in every world."""
        rng = np.random.default_rng(5)
        rows = []
        for k, g in np.ndindex(MEANS.shape):
            noise = rng.gamma(4.0, 0.25, cells) if self.name in ("exponential", "gamma") else None
            drawn = MEANS[k, g] * noise if noise is not None else rng.normal(MEANS[k, g], 0.5, cells)
            least = 2.0**-9 if noise is not None else -1.0
            outcomes = self.at(np.clip(np.round(drawn * 1024) / 1024, least, 3.0))
            rows += [("abc"[k], "xy"[g], float(x)) for x in outcomes]
        return pl.DataFrame(rows, schema=["policy", "group", "outcome"], orient="row")


KINDS = ["none", "floors", "caps", "gap", "ratio", "quota", "dispersion", "polyhedron", "all", "penalty"]
SHIFTED = ["gaussian", "gaussian-unknown", "bounded"]
SCALED = ["gaussian", "bounded", "exponential", "gamma"]  # those whose plan has no unit of its own
FAMILIES = ["gaussian", "gaussian-unknown", "bounded", "exponential"]


def can_be_shifted(kind: str) -> bool:
    return kind != "ratio"  # a ratio of means has a zero


# plan


def planned(world: World, kind: str, mode: str = "active") -> eh.Plan:
    return eh.plan(world.problem(kind, mode), world.at(MEANS), gap=GAP)


def assert_the_same_plan(base: eh.Plan, found: eh.Plan) -> None:
    assert (found.answer, found.feasible) == (base.answer, base.feasible)
    assert [text.split("(")[0] for text in found.warnings] == [text.split("(")[0] for text in base.warnings]
    assert found.time_low == pytest.approx(base.time_low, rel=2 * GAP)
    assert found.time_high == pytest.approx(base.time_high, rel=2 * GAP)
    assert found.allocation == pytest.approx(base.allocation, abs=5e-3)


@crossed("family", SCALED, "kind", KINDS)
def test_a_plan_does_not_depend_on_the_unit_of_outcomes(family: str, kind: str) -> None:
    base = planned(World(family), kind)
    for scale in FAR_TENS:
        assert_the_same_plan(base, planned(World(family, scale), kind))


@crossed("family", ["gaussian", "bounded"], "kind", KINDS)
def test_a_plan_in_a_unit_of_a_power_of_two_is_the_same_to_the_last_bit(family: str, kind: str) -> None:
    base = planned(World(family), kind)
    for scale in TWOS:
        found = planned(World(family, scale), kind)
        assert (found.time_low, found.time_high) == (base.time_low, base.time_high)
        assert np.array_equal(found.allocation, base.allocation)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if can_be_shifted(kind)])
@pytest.mark.parametrize("family", SHIFTED)
def test_a_plan_does_not_depend_on_where_outcomes_are_counted_from(family: str, kind: str) -> None:
    base = planned(World(family), kind)
    for shift in SHIFTS:
        assert_the_same_plan(base, planned(World(family, 1.0, shift), kind))


@pytest.mark.parametrize("mode", ["proportional", "agnostic"])
def test_a_plan_of_another_mode_does_not_depend_on_the_unit(mode: str) -> None:
    base = planned(World("gaussian"), "dispersion", mode)
    for scale in FAR_TENS:
        assert_the_same_plan(base, planned(World("gaussian", scale), "dispersion", mode))


@pytest.mark.parametrize("scale", TENS)
def test_means_clearly_inside_a_dispersion_are_not_on_its_boundary(scale: float) -> None:
    # dispersions of 2 x 0.2^2 and 2 x 2^2; the bound is 0.5
    constraint = eh.Dispersion(0.5 * scale**2)
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Gaussian(scale), constraint)
    means = np.array([[1.0, 1.4], [0.0, 4.0]]) * scale
    found = eh.plan(problem, means)
    assert (found.answer, found.feasible) == ("a", ("a",))
    # leaving alone, from a difference of 0.4 to one of 1, would take 2 (1 + 1)^2 / 0.6^2 = 22.2
    assert found.time_low == pytest.approx(23.11110, rel=1e-5)
    runs = eh.simulate(problem, means, eh.Procedure(delta=0.1), replications=8, seed=1, workers=1)
    assert runs.correct.all()


@pytest.mark.parametrize("scale", TENS)
def test_means_on_the_boundary_are_on_it_in_every_unit(scale: float) -> None:
    # 0.1 + 0.2 is not 0.3 by its last digit
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Gaussian(scale), eh.Floors(0.3 * scale))
    with pytest.raises(Undecidable, match="'a' would be the answer but lies exactly on the boundary"):
        eh.plan(problem, [[0.1 * scale + 0.2 * scale, 2.0 * scale], [0.4 * scale, 0.5 * scale]])
    near = [[0.3 * scale * (1 + 1e-9), 2.0 * scale], [0.4 * scale, 0.5 * scale]]
    assert eh.plan(problem, near).time_high > 1e17


@pytest.mark.parametrize("scale", TENS)
def test_a_floor_of_0_is_met_up_to_rounding_in_every_unit(scale: float) -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Gaussian(scale), eh.Floors(0.0))
    gap = (0.3 - (0.1 + 0.2)) * scale
    assert gap < 0
    assert problem.feasible([[gap, scale], [-1e-9 * scale, scale]]).tolist() == [True, False]


@pytest.mark.parametrize("scale", TENS)
def test_ties_are_ties_in_every_unit(scale: float) -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.1, "y": 0.9}, eh.Gaussian(scale))
    with pytest.raises(Undecidable, match="are tied for the best overall mean"):
        eh.plan(problem, [[0.3 * scale, 0.7 * scale], [1.2 * scale, 0.6 * scale]])
    assert eh.plan(problem, [[0.3 * scale, 0.7 * scale], [1.2 * scale, (0.6 + 1e-6) * scale]]).answer == "b"


@pytest.mark.parametrize("scale", TENS)
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_linear_conditions_leave_room_or_do_not_in_every_unit(scale: float, shift: float) -> None:
    rows = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]

    def asked(total: float) -> eh.Problem:
        bounds = [scale * (1.0 + shift), scale * (1.0 + shift), -scale * (total + 2.0 * shift)]
        return eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Gaussian(scale), eh.Polyhedron(rows, bounds))

    assert asked(2.5).shape == (2, 2)
    with pytest.raises(BadInput, match="must leave room"):
        asked(1.5)


def test_the_warning_of_a_narrow_margin_does_not_depend_on_the_unit() -> None:
    # an intersection measures some conditions in the unit of outcomes and some in its square
    for scale in (1e-6, 1.0, 1e6):
        constraint = eh.All((eh.Floors(0.1 * scale), eh.Dispersion(0.5 * scale**2)))
        problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Gaussian(scale), constraint)
        found = eh.plan(problem, np.array([[1.0, 1.98], [0.5, 0.6]]) * scale)
        assert any("'a' only just meets its requirement" in text for text in found.warnings), scale


# simulate


def simulated(world: World, kind: str, replications: int = 3, **options: Any) -> tuple[Any, ...]:
    """Everything that a run decides: where it sampled, when it stopped, with which answer, right or wrong."""
    given = {"stopping": "stylised", "delta": 0.1, "max_samples": 150} | options
    runs = eh.simulate(
        world.problem(kind), world.truth(), eh.Procedure(**given), replications, seed=3, workers=1
    )
    rows = runs.rows
    counts = [part.tolist() for part in rows if part.dtype != np.float64]
    return runs.samples.tolist(), runs.correct.tolist(), counts


@crossed("family", FAMILIES, "kind", KINDS)
def test_runs_in_a_unit_of_a_power_of_two_are_the_same_to_the_last_sample(family: str, kind: str) -> None:
    for options in ({"sampling": "ts-ids", "stopping": "certified"}, {"sampling": "top-two"}):
        base = simulated(World(family), kind, **options)
        for scale in TWOS:
            assert simulated(World(family, scale), kind, **options) == base


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [rule for rule in SAMPLING if rule not in ("oracle", "ts-ids")])
def test_every_sampling_rule_is_the_same_in_a_unit_of_a_power_of_two(sampling: str) -> None:
    for family, kind in (("gaussian", "floors"), ("gaussian-unknown", "gap"), ("exponential", "floors")):
        options: dict[str, Any] = {"sampling": sampling, "max_samples": 80}
        if sampling == "sequential-halving":
            options["stopping"] = eh.Budget(80)
        base = simulated(World(family), kind, **options)
        for scale in TWOS:
            assert simulated(World(family, scale), kind, **options) == base


def steady(kind: str) -> str:
    """A sampling rule that does not hang on rounding errors.

    In an intersection of conditions the solver moves every cell, if only by its accuracy, and some rules ask
    which cells it moves at all.
    """
    return "ids" if kind in ("polyhedron", "all") else "ts-ids"


@crossed("family", FAMILIES, "kind", KINDS)
def test_runs_do_not_depend_on_the_unit_of_outcomes(family: str, kind: str) -> None:
    base = simulated(World(family), kind, sampling=steady(kind))
    for scale in FAR_TENS:
        assert simulated(World(family, scale), kind, sampling=steady(kind)) == base


@crossed("family", ["gaussian", "gaussian-unknown"], "kind", [kind for kind in KINDS if can_be_shifted(kind)])
def test_runs_do_not_depend_on_where_outcomes_are_counted_from(family: str, kind: str) -> None:
    base = simulated(World(family), kind, sampling=steady(kind))
    for shift in SHIFTS:
        assert simulated(World(family, 1.0, shift), kind, sampling=steady(kind)) == base


@pytest.mark.parametrize("stopping", ["certified", "stylised"])
def test_one_outcome_per_cell_and_late_ones_do_not_bring_in_a_unit(stopping: str) -> None:
    """Where the variance is unknown, cells with fewer than two outcomes need one from somewhere."""
    for scale in (*TWOS, *FAR_TENS):
        found = []
        for world in (World("gaussian-unknown"), World("gaussian-unknown", scale)):
            truth = Truth(means=world.truth().means, sd=world.truth().sd, lag=4)
            procedure = eh.Procedure(initial=1, stopping=stopping, delta=0.1, max_samples=200)
            runs = eh.simulate(world.problem("floors"), truth, procedure, 6, seed=2, workers=1)
            found.append((runs.samples.tolist(), runs.correct.tolist()))
        assert found[0] == found[1]


# judge


def judged(world: World, kind: str, **options: Any) -> eh.Verdict:
    given: dict[str, Any] = {"replications": 0, "procedure": eh.Procedure(delta=0.1)} | options
    return eh.judge(world.problem(kind), world.frame(), **given)


def assert_the_same_verdict(base: eh.Verdict, found: eh.Verdict, world: World) -> None:
    assert (found.leader, found.decided, found.weakest) == (base.leader, base.decided, base.weakest)
    assert [policy.verdict for policy in found.policies] == [policy.verdict for policy in base.policies]
    assert found.evidence == pytest.approx(base.evidence, rel=1e-6, abs=1e-6)
    assert found.needed == pytest.approx(base.needed, rel=1e-12)
    for one, other in zip(base.cells, found.cells, strict=True):
        assert (other.n, other.verdict) == (one.n, one.verdict)
        for end, moved in ((one.low, other.low), (one.high, other.high)):
            assert (end is None) == (moved is None)
            if end is not None:
                assert (moved - world.shift) / world.scale == pytest.approx(end, rel=1e-6, abs=1e-6)


WORLDS = [World("", scale) for scale in FAR_TENS] + [World("", 1.0, shift) for shift in SHIFTS]


@crossed("family", FAMILIES, "kind", KINDS)
def test_a_verdict_does_not_depend_on_the_unit_of_outcomes(family: str, kind: str) -> None:
    for options in ({}, {"procedure": eh.Procedure(delta=0.1, stopping="stylised")}):
        base = judged(World(family), kind, **options)
        for world in WORLDS:
            if world.shift == 0.0 or (family in SHIFTED and can_be_shifted(kind)):
                there = world._replace(name=family)
                assert_the_same_verdict(base, judged(there, kind, **options), there)


@crossed("family", [*FAMILIES, "gamma"], "kind", ["floors", "gap", "dispersion", "polyhedron", "penalty"])
def test_a_verdict_on_a_fixed_sample_does_not_depend_on_the_unit(family: str, kind: str) -> None:
    base = judged(World(family), kind, fixed=True)
    for scale in (1e-12, 1e12):
        there = World(family, scale)
        assert_the_same_verdict(base, judged(there, kind, fixed=True), there)


@pytest.mark.parametrize("stopping", ["certified", "stylised"])
def test_cells_whose_outcomes_are_all_the_same_are_judged_alike_in_every_unit(stopping: str) -> None:
    rows = [("a", "x", 1.5), ("a", "x", 1.5), ("a", "x", 1.5), ("a", "y", 1.0), ("a", "y", 2.0)]
    rows += [("b", "x", 0.5), ("b", "x", 0.25), ("b", "y", 1.0), ("c", "x", 2.0), ("c", "y", 2.5)]
    found = []
    for scale in (1.0, *TWOS, *FAR_TENS):
        world = World("gaussian-unknown", scale)
        table = [(policy, group, x * scale) for policy, group, x in rows]
        frame = pl.DataFrame(table, schema=["policy", "group", "outcome"], orient="row")
        verdict = eh.judge(
            world.problem("floors"), frame, procedure=eh.Procedure(stopping=stopping), replications=0
        )
        found.append(
            (verdict.leader, verdict.decided, [c.verdict for c in verdict.cells], round(verdict.evidence, 6))
        )
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("family", ["gaussian", "exponential"])
def test_a_cell_without_data_does_not_bring_in_a_unit(family: str, fixed: bool) -> None:
    leaders = []
    for scale in (1.0, 1e-6, 1e6):
        world = World(family, scale)
        frame = world.frame().filter((pl.col("policy") != "c") | (pl.col("group") != "y"))
        verdict = eh.judge(world.problem("none"), frame, 0.1, fixed=fixed, replications=0)
        leaders.append((verdict.leader, verdict.decided, verdict.weakest))
    assert leaders[0] == leaders[1] == leaders[2]


# all of it, anywhere


@given(
    family=st.sampled_from([*FAMILIES, "gamma"]),
    kind=st.sampled_from(KINDS),
    exponent=st.integers(-12, 12),
    digits=st.floats(1.0, 10.0),
    shift=st.floats(-100.0, 100.0),
)
@settings(max_examples=60)
def test_any_unit_will_do(family: str, kind: str, exponent: int, digits: float, shift: float) -> None:
    base, scale = World(family), digits * 10.0**exponent
    moved = shift * scale if family in SHIFTED and can_be_shifted(kind) else 0.0
    world = World(family, scale, moved)
    if family in SCALED:
        assert_the_same_plan(planned(base, kind), planned(world, kind))
    options = {"replications": 2, "sampling": steady(kind), "max_samples": 120}
    assert simulated(world, kind, **options) == simulated(base, kind, **options)
    assert_the_same_verdict(judged(base, kind), judged(world, kind), world)


# what stands beside


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_scenarios_of_a_dossier_lie_near_a_boundary(scale: float) -> None:
    world = World("gaussian", scale)
    grid = scenario_grid(world.problem("floors"), Scenario(world.at(MEANS), {}))
    same = scenario_grid(World("gaussian").problem("floors"), Scenario(MEANS, {}))
    assert list(grid) == list(same)
    for name, (table, _) in grid.items():
        assert table == pytest.approx(same[name].means * scale, rel=1e-9, abs=1e-9 * scale)


def test_a_set_of_the_users_own_is_refused_where_its_solver_cannot_see_it() -> None:
    own = eh.Convex(build=lambda m: [m >= 0.2e-9], contains=lambda m: bool((m >= 0.2e-9).all()))
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Gaussian(1e-9), own)
    with pytest.raises(BadInput, match="needs outcomes of a size from 1e-07 to 1e\\+07"):
        eh.plan(problem, [[1e-9, 1e-9], [0.5e-9, 0.5e-9]])


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_a_set_of_the_users_own_is_planned_like_the_same_floors_in_other_units(scale: float) -> None:
    floor = 0.2 * scale
    own = eh.Convex(build=lambda m: [m >= floor], contains=lambda m: bool((np.asarray(m) >= floor).all()))
    groups, means = {"x": 0.5, "y": 0.5}, np.array([[1.0, 0.9], [0.1, 1.5]]) * scale
    found = eh.plan(eh.Problem(["a", "b"], groups, eh.Gaussian(scale), own), means, gap=1e-3)
    floors = eh.plan(eh.Problem(["a", "b"], groups, eh.Gaussian(scale), eh.Floors(floor)), means)
    assert found.answer == floors.answer == "a"
    assert found.time_low <= floors.time_high
    assert floors.time_low <= found.time_high <= found.time_low * (1 + 2e-3)


def test_small_numbers_are_not_shown_as_0() -> None:
    from evenhand.cli.judge import _number as in_terminal
    from evenhand.reports.figures.canvas import number, tick_label
    from evenhand.service.pages import _number as on_page

    assert [in_terminal(2.5e-7), on_page(-2.5e-7), number(2.5e-7)] == ["2.50e-07", "-2.50e-07", "2.50e-07"]
    assert [in_terminal(0.0), on_page(0.25), number(0.25), number(0.0)] == [
        "0.0000",
        "0.2500",
        "0.250",
        "0.000",
    ]
    assert [tick_label(2e-9, 1e-9), tick_label(0.25, 0.05)] == ["2e-09", "0.25"]

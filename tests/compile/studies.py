"""Small studies of every structure: family, requirement, rules, mode, pending samples."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

from evenhand.procedure.spec import SAMPLING
from evenhand.study import Study

MEANS = [[0.8, 0.6], [0.5, 0.7], [0.3, 0.4]]
FAMILIES: dict[str, dict[str, Any]] = {
    "gaussian": {"sd": 0.5},
    "bernoulli": {},
    "binomial": {"trials": 3},
    "poisson": {},
    "exponential": {},
    "gamma": {"shape": 2.5},
    "bounded": {"low": 0.0, "high": 1.0},
    "gaussian-unknown": {},
}
REQUIREMENTS: dict[str, dict[str, Any]] = {
    "floors": {"kind": "floors", "at_least": 0.25},
    "none": {"kind": "none"},
    "caps": {"kind": "caps", "at_most": 0.75},
    "gap": {"kind": "gap", "at_most": 0.3},
    "ratio": {"kind": "ratio", "at_least": 0.5},
    "quota": {"kind": "quota", "at_least": 0.45, "groups": 1},
    "dispersion": {"kind": "dispersion", "at_most": 0.02},
    "penalty": {"kind": "penalty", "floor": 0.4, "gamma": 0.5},
    "polyhedron": {"kind": "polyhedron", "A": [[1.0, -1.0]], "b": [-0.3]},
    "all": {
        "kind": "all",
        "of": [
            {"kind": "quota", "at_least": 0.3, "groups": 1},
            {"kind": "dispersion", "at_most": 0.05},
            {"kind": "floors", "at_least": 0.1},
        ],
    },
}
# not with every family: the wider questions
WIDER: dict[str, dict[str, Any]] = {
    "beside a control": {
        "kind": "all",
        "of": [
            {"kind": "floors", "relative_to": "p1", "margin": 0.05},
            {"kind": "caps", "relative_to": "p1", "margin": 0.4},
            {"kind": "floors", "at_least": 0.2},
        ],
    }
}
# guard-rails of every family, absolute and relative
RAILS: list[dict[str, Any]] = [
    {
        "name": name,
        "family": {"name": name, **FAMILIES[name]},
        "constraint": {"kind": "caps", "at_most": 0.9}
        if name == "exponential"
        else {"kind": "floors", "relative_to": "p1", "margin": 0.3},
    }
    for name in ("gaussian", "gaussian-unknown", "bernoulli", "poisson", "exponential")
]
STOPPING: dict[str, Any] = {
    "certified": "certified",
    "stylised": "stylised",
    "kaufmann-koolen": "kaufmann-koolen",
    "budget": {"budget": 20},
    "calibrated": {"calibrated": 3.0},
}
MODES = ("active", "proportional", "agnostic")
# a requirement for each sampling rule that plain Python solves quickly together with the family beside it
QUICK = (
    "floors", "gap", "dispersion", "none", "caps", "quota", "polyhedron", "all", "ratio", "penalty", "floors",
    "penalty",
)  # fmt: skip
# lag of outcomes, chance that they are lost, samples in a batch
PENDING = tuple(itertools.product((0, [1, 4]), (0.0, 0.2), (1, 3)))


def study(
    family: str = "gaussian",
    requirement: str = "floors",
    sampling: str = "ts-ids",
    stopping: str = "certified",
    mode: str = "active",
    pending: tuple[Any, float, int] = (0, 0.0, 1),
    means: list[list[float]] | None = None,
    goal: str = "best",
    guardrails: bool = False,
    costs: dict[str, float] | None = None,
    room: int | None = None,
    truth: dict[str, Any] | None = None,
    **procedure: Any,
) -> Study:
    """A study with three policies, two groups and a cap of 24 samples, unless told otherwise.

    `kaufmann-koolen` has no guard-rail of unknown variance, for which it is not proved.
    """
    table = means or MEANS
    scale = FAMILIES[family].get("trials", 1)
    groups = len(table[0])
    lag, dropout, batch = pending
    rails = [rail for rail in RAILS if (rail["name"], stopping) != ("gaussian-unknown", "kaufmann-koolen")]
    return Study.from_dict(
        {
            "problem": {
                "policies": [f"p{k}" for k in range(len(table))],
                "groups": {f"g{g}": 1 / groups for g in range(groups)},
                "family": {"name": family, **FAMILIES[family]},
                "constraint": _scaled((REQUIREMENTS | WIDER)[requirement], scale),
                "mode": mode,
                "goal": goal,
                "guardrails": rails if guardrails else [],
                **({"costs": costs} if costs else {}),
                **({"max_policies": room} if room else {}),
            },
            "procedure": {
                "sampling": sampling, "stopping": STOPPING[stopping], "delta": 0.1, "batch": batch,
                "max_samples": 24,
            } | procedure,
            "truth": {
                "means": [[scale * mean for mean in row] for row in table], "lag": lag, "dropout": dropout,
                "guardrails": {rail["name"]: MEANS for rail in rails} if guardrails else {},
                **(truth or {}),
            },
        }
    )  # fmt: skip


def quick() -> dict[str, Study]:
    """Studies in which every member of every set occurs."""
    found = {}
    for number, sampling in enumerate(SAMPLING):
        parts = {
            "family": list(FAMILIES)[number % len(FAMILIES)],
            "requirement": QUICK[number],
            "sampling": sampling,
            "stopping": list(STOPPING)[number % len(STOPPING)],
            "mode": MODES[number % len(MODES)],
            "pending": PENDING[number % len(PENDING)],
        }
        found[" ".join(str(part) for part in parts.values())] = _possible(parts)
    found["indifference and tolerance"] = study(indifference=0.2, tolerance=0.1)
    found["beside a control"] = study("bernoulli", "beside a control", mode="proportional")
    found["screening"] = study("bernoulli", goal="screen")
    found["guard-rails"] = study(guardrails=True)
    found["guard-rails, weights"] = study(sampling="frank-wolfe", stopping="stylised", guardrails=True)
    found["costs, futility, random and uneven initial samples"] = study(
        "bernoulli", costs={"p0": 2.0, "p2": 0.5}, futility=0.01, initial={"g0": 1, "g1": 3},
        initial_order="random",
    )  # fmt: skip
    found["linear bets"] = study("bounded", evidence="linear-bets", indifference=0.05)
    found["linear bets, gaussian"] = study(mode="proportional", evidence="linear-bets", indifference=0.05)
    found["room for policies that join"] = study("bernoulli", room=5, indifference=0.05)
    return found


def in_intervals() -> dict[str, Study]:
    """Studies that run in intervals: families, two sampling rules, bets, late counts, room for policies."""
    found = {}
    for number, family in enumerate(f for f in FAMILIES if f not in ("exponential", "gamma")):
        requirement = ("floors", "caps", "none")[number % 3]
        sampling, stopping = ("ts-ids", "top-two")[number % 2], ("certified", "stylised")[number // 2 % 2]
        found[f"{family} {requirement} {sampling} {stopping}"] = _in_intervals(
            family, requirement, sampling, stopping
        )
    found["linear bets"] = _in_intervals("bernoulli", evidence="linear-bets")
    found["linear bets, bounded, outcomes at the ends"] = _in_intervals(
        "bounded", "caps", evidence="linear-bets", truth={"outcomes": "bernoulli"}
    )
    found["beside a control"] = _in_intervals("bernoulli", "beside a control")
    found["counted late, outcomes lost"] = _in_intervals(
        "bernoulli", pending=([1, 4], 0.2, 1), settings={"length": "1h", "delay": "2h"}
    )
    found["indifference and tolerance"] = _in_intervals("poisson", indifference=0.2, tolerance=0.1)
    found["room for policies that join"] = _in_intervals("bernoulli", room=5)
    return found


def in_intervals_slow() -> dict[str, Study]:
    """Studies that run in intervals and take plain Python a minute: long evidence, programmes, searches."""
    found = {
        name: _in_intervals("gaussian", name, "top-two") for name in ("gap", "ratio", "quota", "penalty")
    }
    found["exponential"] = _in_intervals("exponential", "caps")
    found["gamma"] = _in_intervals("gamma", "none", "top-two")
    found["guard-rails"] = _in_intervals(guardrails=True)
    return found


@cache
def on_items() -> dict[str, Study]:
    """Studies in which several policies answer each item, of every family and requirement that there is."""
    parts: dict[str, tuple[Any, ...]] = {
        "bernoulli, floors": ("bernoulli", "floors"), "binomial, gap": ("binomial", "gap"),
        "bounded, caps": ("bounded", "caps", "uniform"),
        "bernoulli, quota": ("bernoulli", "quota", "uniform"),
    }  # fmt: skip
    settings: dict[str, Any] = {"items": "shared", "max_samples": 60, "initial": 2}
    found = {name: study(*asked, **settings) for name, asked in parts.items()}
    found["groups arrive, lost outcomes"] = study(
        "bernoulli", mode="proportional", pending=(0, 0.2, 3), **settings
    )
    found["difficult items"] = study("bernoulli", truth={"agreement": 0.7}, **settings)
    found["screening"] = study("bernoulli", goal="screen", **settings)
    return found


def _in_intervals(*parts: Any, settings: dict[str, Any] | None = None, **more: Any) -> Study:
    """Return a study with intervals of 15 units and a cap of 45 samples."""
    interval = {"volume": 15, **(settings or {})}
    return study(*parts, **{"mode": "proportional", "interval": interval, "max_samples": 45} | more)


def _wider() -> dict[str, Study]:
    """More studies of the wider questions."""
    found = {}
    for number, family in enumerate(("gaussian", "gaussian-unknown", "bernoulli", "poisson")):
        parts = {"stopping": list(STOPPING)[number], "mode": MODES[number % len(MODES)]}
        more = {"indifference": 0.2, "tolerance": 0.1} if family == "poisson" else {}
        found[f"beside a control, {family}"] = study(family, "beside a control", **parts, **more)
    for sampling in ("top-two", "exact-tracking", "two-stage", "sequential-halving"):
        found[f"beside a control, {sampling}"] = study("gaussian", "beside a control", sampling)
    found["screening beside a control"] = study(
        requirement="beside a control", stopping="stylised", goal="screen"
    )
    found["guard-rails, indifference"] = study(guardrails=True, stopping="stylised", indifference=0.2)
    found["guard-rails, screening"] = study(guardrails=True, goal="screen")
    for number, sampling in enumerate(SAMPLING[1:]):  # the first one is among the quick studies
        mode, stopping = MODES[number % len(MODES)], ("stylised", "certified")[number % 2]
        found[f"guard-rails, {sampling}"] = study(
            "poisson", ("floors", "penalty", "gap")[number % 3], sampling, stopping, mode, guardrails=True
        )
    for more in ({}, {"goal": "screen", "requirement": "beside a control"}, {"indifference": 0.2}):
        found[f"guard-rails, kaufmann-koolen {more}"] = study(
            stopping="kaufmann-koolen", guardrails=True, **more
        )
    found["costs, agnostic"] = study(mode="agnostic", costs={"p0": 2.0}, stopping="stylised", futility=0.1)
    found["random order, proportional"] = study(mode="proportional", initial=3, initial_order="random")
    for family, requirement, mode in (
        ("bernoulli", "gap", "proportional"), ("binomial", "floors", "agnostic"),
        ("bounded", "quota", "active"),
        ("bernoulli", "beside a control", "active"), ("binomial", "none", "proportional"),
    ):  # fmt: skip
        found[f"linear bets, {family}, {requirement}, {mode}"] = study(
            family, requirement, mode=mode, evidence="linear-bets", max_samples=36
        )
    for mode in ("active", "agnostic"):
        found[f"linear bets, gaussian, {mode}"] = study(mode=mode, evidence="linear-bets", max_samples=36)
    found["linear bets, guard-rails"] = study("bernoulli", guardrails=True, evidence="linear-bets")
    found["indifference, bernoulli"] = study("bernoulli", stopping="stylised", indifference=0.2)
    return found


@cache
def covering() -> dict[str, Study]:
    """Studies in which every pair of members of two sets occurs; each has a member of every set."""
    sets: dict[str, list[Any]] = {
        "sampling": list(SAMPLING), "requirement": list(REQUIREMENTS), "family": list(FAMILIES),
        "pending": list(PENDING), "stopping": list(STOPPING), "mode": list(MODES),
    }  # fmt: skip
    missing = {
        frozenset(((one, a), (other, b)))
        for one, other in itertools.combinations(sets, 2)
        for a, b in itertools.product(range(len(sets[one])), range(len(sets[other])))
    }
    found = _wider() | {"exact-tracking, rule c": study(sampling="exact-tracking", tracking="c")}
    while missing:
        row = dict(min(missing, key=sorted))
        for name in (name for name in sets if name not in row):
            new = [len(missing & _pairs_with(row, name, at)) for at in range(len(sets[name]))]
            row[name] = new.index(max(new))
        missing -= {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}
        parts = {name: sets[name][row[name]] for name in sets}
        found[" ".join(str(part) for part in parts.values())] = _possible(parts)
    return found


def _pairs_with(row: dict[str, int], name: str, at: int) -> set[frozenset[tuple[str, int]]]:
    return {frozenset(((name, at), other)) for other in row.items()}


def _possible(parts: dict[str, Any]) -> Study:
    """The study, with means that do not lie on a boundary where the oracle would refuse them.

    Where the stopping rule is not proved for the family, and so refused, it is `certified`.
    """
    if parts.get("family") == "gaussian-unknown" and parts.get("stopping") == "kaufmann-koolen":
        parts = parts | {"stopping": "certified"}
    if parts.get("sampling") == "oracle" and parts.get("requirement") in ("dispersion", "all"):
        return study(**parts, means=[[0.8, 0.61], [0.5, 0.7], [0.3, 0.4]])
    return study(**parts)


def _scaled(table: dict[str, Any], scale: int) -> dict[str, Any]:
    """A requirement on means that are `scale` times as large."""
    if table["kind"] == "all":
        return table | {"of": [_scaled(part, scale) for part in table["of"]]}
    power = {"ratio": 0, "dispersion": 2}.get(table["kind"], 1)
    found = table | {
        key: table[key] * scale**power for key in ("at_least", "at_most", "floor") if key in table
    }
    return found | {"b": [b * scale for b in table["b"]]} if "b" in table else found

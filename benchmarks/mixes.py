"""Experiment (b) for several mixes of policies, because the paper does not state its mix.

    python -m benchmarks.mixes [--replications 400]

Prints the table in docs/paper.md: shares correct with 50 policies, for several shares of policies that are
feasible, infeasible and good overall, and infeasible and poor.
"""

from __future__ import annotations

import argparse

import evenhand as eh
from evenhand.cli.paper import paper_module
from evenhand.simulation.outcome_laws import DrawnTruth

POLICIES = 50
MIXES = ((33, 33), (20, 40), (20, 80), (10, 45), (10, 80), (10, 90), (4, 48))


def main() -> None:
    """Run all mixes and print the table."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--replications", type=int, default=400)
    replications: int = asked.parse_args().replications
    paper_module()
    from evenhand.paper import instances, methods, operational_scale, published

    samples, ours, baseline = published.OPERATIONAL_SCALE[POLICIES]
    procedures = operational_scale.procedures(samples)
    theirs = {
        name: procedures[name]
        for name in (
            methods.POLICY_LEVEL,
            methods.UNIFORM,
            methods.CONVERGING,
        )
    }
    models = {"evenhand, model of the paper": eh.Gaussian(1.0), methods.MATCHED: eh.Bernoulli()}
    print(f"| feasible / good / poor, % | {' | '.join([*theirs, *models])} |")
    print("|---" * (1 + len(theirs) + len(models)) + "|")
    print(f"| published, mix not stated | {baseline} | | {ours} | | |")
    for feasible, good in MIXES:
        drawn = instances.OperationalMeans(POLICIES, (feasible / 100, good / 100))
        runs = [(eh.Gaussian(1.0), procedure) for procedure in theirs.values()]
        runs += [(model, procedures[methods.DEFAULT]) for model in models.values()]
        row = [
            eh.simulate(
                instances.operational_scale(POLICIES, model),
                DrawnTruth(drawn, outcomes="bernoulli"),
                procedure,
                replications,
                seed=1,
            ).correct.mean()
            for model, procedure in runs
        ]
        shares = " | ".join(f"{share:.3f}" for share in row)
        print(f"| {feasible} / {good} / {100 - feasible - good} | {shares} |", flush=True)


if __name__ == "__main__":
    main()

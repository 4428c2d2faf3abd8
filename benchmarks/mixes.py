"""How (b) depends on what the paper does not say: how many of its policies come from each range of means.

    python -m benchmarks.mixes [--replications 400]

Prints the table of docs/paper.md: shares correct with 50 policies, in mixes of those that are feasible,
infeasible and good overall, infeasible and poor.
"""

from __future__ import annotations

import argparse

import evenhand as eh
from evenhand.cli.paper import paper_room
from evenhand.simulation.outcome_laws import Drawn

POLICIES = 50
MIXES = ((33, 33), (20, 40), (20, 80), (10, 45), (10, 80), (10, 90), (4, 48))


def main() -> None:
    """Run all of them and print."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--replications", type=int, default=400)
    replications: int = asked.parse_args().replications
    paper_room()
    from evenhand.paper import contestants, instances, operational_scale, published

    samples, ours, baseline = published.OPERATIONAL_SCALE[POLICIES]
    procedures = operational_scale.procedures(samples)
    theirs = {
        name: procedures[name]
        for name in (contestants.POLICY_LEVEL, contestants.UNIFORM, contestants.CONVERGING)
    }
    models = {"evenhand, model of the paper": eh.Gaussian(1.0), contestants.MATCHED: eh.Bernoulli()}
    print(f"| feasible / good / poor, % | {' | '.join([*theirs, *models])} |")
    print("|---" * (1 + len(theirs) + len(models)) + "|")
    print(f"| published, not said | {baseline} | | {ours} | | |")
    for feasible, good in MIXES:
        drawn = instances.OperationalMeans(POLICIES, (feasible / 100, good / 100))
        runs = [(eh.Gaussian(1.0), procedure) for procedure in theirs.values()]
        runs += [(model, procedures[contestants.DEFAULT]) for model in models.values()]
        row = [
            eh.simulate(
                instances.operational_scale(POLICIES, model),
                Drawn(drawn, outcomes="bernoulli"),
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

"""Gaussian outcomes with unknown variance: its cost, and the cost of a wrong assumption.

Three ways to run the same study: the standard deviation is known (1), assumed to be 0.4, or unknown. The
second stops early because its assumption is wrong, and its guarantee does not hold. The third keeps the
guarantee.
"""

from __future__ import annotations

from dataclasses import replace

import evenhand as eh
from evenhand.simulation.runs import rate
from evenhand.study import Study, Truth

POLICIES, GROUPS = ["a", "b", "c"], {"north": 0.5, "south": 0.5}
MEANS = ((0.6, 0.5), (0.1, 0.2), (1.2, -0.3))
REPLICATIONS = 100


def main() -> dict[str, eh.Runs]:
    truth = Truth(means=MEANS, sd=1.0)
    known = Study(
        eh.Problem(POLICIES, GROUPS, eh.Gaussian(1.0), eh.Floors(0.0)),
        eh.Procedure(delta=0.05, initial=3, max_samples=20_000),
        truth,
    )
    studies = {
        "known": known,
        "assumed too small": replace(known, problem=replace_family(known, eh.Gaussian(0.4))),
        "unknown": replace(known, problem=replace_family(known, eh.GaussianUnknown())),
    }
    found = eh.compare(studies, replications=REPLICATIONS, seed=2).runs
    for name, runs in found.items():
        wrong = rate(runs.wrong)
        print(
            f"{name:18} {runs.samples.mean():6.0f} samples on average; wrong in {wrong.rate:.0%} of the runs "
            f"(95% interval {wrong.low:.1%} to {wrong.high:.1%})"
        )
    return dict(found)


def replace_family(study: Study, family: object) -> eh.Problem:
    return replace(study.problem, family=family)


if __name__ == "__main__":
    main()

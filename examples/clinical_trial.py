"""A clinical trial: patients of two age groups arrive as they come, and outcomes are known weeks later.

The doctor cannot choose who walks in, only the treatment: proportional sampling. While the first outcomes are
awaited, tickets are out; they count for the allocation and not for the evidence.
"""

from __future__ import annotations

from collections import deque

import numpy as np

import evenhand as eh

GROUPS = {"under 80": 0.72, "80 and over": 0.28}
WELL = {"standard": (0.75, 0.70), "new": (0.97, 0.90), "double dose": (0.98, 0.35)}
LAG = 40  # patients who arrive before an outcome is known
FLOOR = 0.6


def main(journal: str = ":memory:") -> eh.Status:
    problem = eh.Problem(list(WELL), GROUPS, eh.Bernoulli(), eh.Floors(FLOOR), mode="proportional")
    print(
        f"At least {eh.plan(problem, list(WELL.values())).samples_at_least(0.05):,.0f} patients on average."
    )
    rng = np.random.default_rng(3)
    awaited: deque[tuple[object, int]] = deque()
    with eh.Experiment.create(journal, problem, eh.Procedure(delta=0.05, initial=5), seed=3) as trial:
        while True:
            group = str(rng.choice(list(GROUPS), p=list(GROUPS.values())))  # who comes in
            ask = trial.ask(group=group)
            if ask is None:
                break
            well = rng.random() < WELL[ask.policy][problem.group_index(group)]
            awaited.append((ask, int(well)))
            if len(awaited) > LAG:
                trial.tell(*awaited.popleft())
        for ask, well in awaited:  # what still comes in is kept, and no longer counts
            trial.tell(ask, well)
        status = trial.status()
    print(status.sentence)
    print(f"{status.late} outcomes came after the decision.")
    return status


if __name__ == "__main__":
    main()

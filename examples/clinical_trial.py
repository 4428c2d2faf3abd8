"""A clinical trial: patients arrive at random, and outcomes are known weeks later.

There are two age groups. The doctor cannot choose the group, only the treatment: proportional sampling.
Tickets without an outcome count for the allocation but not for the evidence.
"""

from __future__ import annotations

from collections import deque

import numpy as np

import evenhand as eh

GROUPS = {"under 80": 0.72, "80 and over": 0.28}
WELL = {"standard": (0.75, 0.70), "new": (0.97, 0.90), "double dose": (0.98, 0.35)}
LAG = 40  # number of patients who arrive before an outcome is known
FLOOR = 0.6


def main(journal: str = ":memory:") -> eh.Status:
    problem = eh.Problem(list(WELL), GROUPS, eh.Bernoulli(), eh.Floors(FLOOR), mode="proportional")
    print(
        f"At least {eh.plan(problem, list(WELL.values())).samples_at_least(0.05):,.0f} patients on average."
    )
    rng = np.random.default_rng(3)
    pending: deque[tuple[object, int]] = deque()
    with eh.Experiment.create(journal, problem, eh.Procedure(delta=0.05, initial=5), seed=3) as trial:
        while True:
            group = str(rng.choice(list(GROUPS), p=list(GROUPS.values())))  # the patient who arrives
            ask = trial.ask(group=group)
            if ask is None:
                break
            well = rng.random() < WELL[ask.policy][problem.group_index(group)]
            pending.append((ask, int(well)))
            if len(pending) > LAG:
                trial.tell(*pending.popleft())
        for ask, well in pending:  # late outcomes are recorded but not counted
            trial.tell(ask, well)
        status = trial.status()
    print(status.sentence)
    print(f"{status.late} outcomes came after the decision.")
    return status


if __name__ == "__main__":
    main()

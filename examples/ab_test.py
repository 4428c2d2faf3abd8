"""An A/B/n test in which the page is chosen before the visitor's group is known.

Agnostic sampling: the group (desktop or phone) is known only with the outcome. The chosen page must convert
at least 12% of visitors in both groups.
"""

from __future__ import annotations

import numpy as np

import evenhand as eh

GROUPS = {"desktop": 0.45, "phone": 0.55}
CONVERTS = {
    "today": (0.20, 0.21),
    "wide table": (0.62, 0.03),
    "one column": (0.42, 0.40),
    "pop-up": (0.15, 0.10),
}
BATCH = 50  # visitors between two checks of the evidence


def main(journal: str = ":memory:") -> eh.Status:
    problem = eh.Problem(list(CONVERTS), GROUPS, eh.Bernoulli(), eh.Floors(0.12), mode="agnostic")
    rng = np.random.default_rng(5)
    with eh.Experiment.create(journal, problem, eh.Procedure(delta=0.05, batch=BATCH), seed=5) as test:
        while asks := test.ask(BATCH):
            outcomes = []
            for ask in asks:
                group = str(rng.choice(list(GROUPS), p=list(GROUPS.values())))
                bought = rng.random() < CONVERTS[ask.policy][problem.group_index(group)]
                outcomes.append((ask, int(bought), group))
            test.tell_all(outcomes)
        status = test.status()
    print(status.sentence)
    return status


if __name__ == "__main__":
    main()

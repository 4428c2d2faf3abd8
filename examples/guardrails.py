"""Choose the page with the highest revenue among those that keep two guard-rails.

Every visit gives three outcomes: revenue, a complaint or none, and the waiting time. Some visitors leave
before their waiting time is measured; it is then told as missing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import evenhand as eh
from evenhand.study import load

STUDY = Path(__file__).with_name("guardrails.toml")
UNMEASURED = 0.1  # share of visits without a waiting time


def main(journal: str = ":memory:") -> eh.Status:
    study = load(STUDY)
    plan = eh.plan(study)
    print(f"{plan.answer} should be found; at least {plan.samples_at_least(0.05):,.0f} visits are needed.")
    revenue, rails, rng = study.means(), study.guardrail_means(), np.random.default_rng(3)
    with eh.Experiment.create(journal, study.problem, study.procedure, seed=3) as test:
        while ask := test.ask():
            k, g = study.problem.policy_index(ask.policy), study.problem.group_index(ask.group)
            waiting = rng.normal(rails["waiting"][k][g], 0.5)
            visit = {
                "outcome": rng.normal(revenue[k][g], 4.0),
                "complaints": rng.random() < rails["complaints"][k][g],
                "waiting": None if rng.random() < UNMEASURED else waiting,
            }
            test.tell(ask, visit)
        status = test.status()
    print(status.sentence)
    return status


if __name__ == "__main__":
    main()

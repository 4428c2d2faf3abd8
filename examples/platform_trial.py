"""A platform trial: one treatment is withdrawn, another joins, and the best of those present is found.

The trial has room for five treatments (`max_policies`), so its threshold covers all of them from the start.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import evenhand as eh
from evenhand.study import load

STUDY = Path(__file__).with_name("platform.toml")
NEW, RECOVER = "Combination", (0.85, 0.80)  # a treatment that arrives later, and how often patients recover


def main(journal: str = ":memory:") -> eh.Status:
    study, rng = load(STUDY), np.random.default_rng(5)
    recover = dict(zip(study.problem.policies, study.means(), strict=True)) | {NEW: RECOVER}
    with eh.Experiment.create(journal, study, seed=5) as trial:

        def treat(patients: int) -> None:
            for _ in range(patients):
                ask = trial.ask()
                if ask is None:
                    return
                group = study.problem.group_index(ask.group)
                trial.tell(ask, rng.random() < recover[ask.policy][group])

        treat(150)
        trial.withdraw("Double dose", reason="two serious adverse events", by="safety board")
        treat(100)
        trial.add_policy(NEW, reason="approved by the steering committee", by="steering committee")
        treat(20_000)
        status = trial.status()
    print(status.sentence)
    return status


if __name__ == "__main__":
    main()

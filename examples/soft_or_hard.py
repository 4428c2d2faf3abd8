"""Hard floors and soft penalties: a floor excludes a policy, a penalty lowers its score.

The paper's ten policies, with a hard floor of 0.2 in every group and with increasing penalties. With a small
penalty the policy that misses its floor still wins; with a large penalty the answer is that of the hard
floor. In between many samples are needed, because two answers are nearly equally good.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import evenhand as eh
from evenhand.study import load

FLOOR = 0.2
GAMMAS = (0.5, 1.0, 5.0, 50.0)


def main() -> dict[str, eh.Plan]:
    study = load(Path(__file__).with_name("hard.toml"))
    requirements = {"hard floor": eh.Floors(FLOOR)}
    requirements |= {f"penalty {gamma:g}": eh.Penalty(FLOOR, gamma) for gamma in GAMMAS}
    found = {}
    for name, requirement in requirements.items():
        plan = eh.plan(replace(study.problem, constraint=requirement), study.means())
        least = plan.samples_at_least(0.05)
        print(
            f"{name:11}  {plan.answer or 'none':4}  T* = {plan.time_low:6.1f}  at least {least:,.0f} samples"
        )
        found[name] = plan
    return found


if __name__ == "__main__":
    main()

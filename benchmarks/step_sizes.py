"""The step sizes we tried in Algorithm 1, to come near the published stopping times of the scaling instance.

    python -m benchmarks.step_sizes [--replications 400]

Prints the table of docs/paper.md: mean samples, unstopped runs counted at the cap.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import evenhand as eh
from evenhand.cli.paper import paper_room

STEPS = (1.0, 0.1, 0.03, 0.01)
RISKS = (0.2, 0.014, 0.0005)


def main() -> None:
    """Run all of them and print."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--replications", type=int, default=400)
    replications: int = asked.parse_args().replications
    paper_room()
    from evenhand.paper import contestants, instances, published

    problem, means = instances.scaling()
    rules = {f"constant {step:g}": eh.TrackAndStop(step=step) for step in STEPS}
    rules |= {f"{step:g} / (|c| sqrt(n))": eh.TrackAndStop(step=step, diminishing=True) for step in STEPS[:2]}
    print("| step | " + " | ".join(f"risk {risk:g}" for risk in RISKS) + " |")
    print("|---" * (1 + len(RISKS)) + "|")
    print("| published | " + " | ".join(str(published.DELTA_SCALING[risk][0]) for risk in RISKS) + " |")
    for name, rule in rules.items():
        row = []
        for risk in RISKS:
            procedure = replace(contestants.fixed_confidence(risk)[contestants.LITERAL], sampling=rule)
            runs = eh.simulate(problem, means, procedure, replications, seed=1)
            stuck = int((~runs.stopped).sum())
            row.append(f"{runs.samples.mean():,.0f}" + (f" ({stuck} unstopped)" if stuck else ""))
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()

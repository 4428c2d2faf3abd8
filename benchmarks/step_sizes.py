"""Stopping times of Algorithm 1 on the scaling instance for several step sizes.

    python -m benchmarks.step_sizes [--replications 400]

Prints the table in docs/paper.md: mean samples; unstopped runs count with the cap.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import evenhand as eh
from evenhand.cli.paper import paper_module

STEPS = (1.0, 0.1, 0.03, 0.01)
RISKS = (0.2, 0.014, 0.0005)


def main() -> None:
    """Run all step sizes and print the table."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--replications", type=int, default=400)
    replications: int = asked.parse_args().replications
    paper_module()
    from evenhand.paper import instances, methods, published

    problem, means = instances.scaling()
    rules = {f"constant {step:g}": eh.TrackAndStop(step=step) for step in STEPS}
    rules |= {f"{step:g} / (|c| sqrt(n))": eh.TrackAndStop(step=step, diminishing=True) for step in STEPS[:2]}
    print("| step | " + " | ".join(f"risk {risk:g}" for risk in RISKS) + " |")
    print("|---" * (1 + len(RISKS)) + "|")
    print("| published | " + " | ".join(str(published.DELTA_SCALING[risk][0]) for risk in RISKS) + " |")
    for name, rule in rules.items():
        row = []
        for risk in RISKS:
            procedure = replace(methods.fixed_confidence(risk)[methods.LITERAL], sampling=rule)
            runs = eh.simulate(problem, means, procedure, replications, seed=1)
            unstopped = int((~runs.stopped).sum())
            row.append(f"{runs.samples.mean():,.0f}" + (f" ({unstopped} unstopped)" if unstopped else ""))
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()

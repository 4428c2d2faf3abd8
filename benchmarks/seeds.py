"""Mean samples and errors over many seeds, for some rows of the paper.

    python -m benchmarks.seeds [--seeds 16] [--replications 3000]

Prints the table in docs/paper.md. The last rows have a lower risk than in the paper: the risk at which
evenhand is as often right as published.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np

import evenhand as eh
from evenhand.cli.paper import paper_module


class Row(NamedTuple):
    """One comparison: an instance, the published numbers, and the risk that evenhand runs at."""

    label: str
    instance: tuple[eh.Problem, Any]
    samples: float
    error: float
    share: str
    risk: float


def main() -> None:
    """Run all rows and print the table."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seeds", type=int, default=16)
    asked.add_argument("--replications", type=int, default=3000)
    chosen = asked.parse_args()
    paper_module()
    heads = (
        "row",
        "risk",
        "published",
        "evenhand",
        "/ published",
        "errors in 3,000",
        "published errors",
        "p",
    )
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for row in rows():
        print(compared(row, chosen.seeds, chosen.replications), flush=True)


def rows() -> list[Row]:
    """Return both ends of (a), all of (c), and two rows of (c) at a lower risk."""
    from evenhand.paper import instances, published

    found = []
    for delta in (0.2, 0.0005):
        samples, error, _, share = published.DELTA_SCALING[delta]
        found.append(Row("scaling", instances.scaling(), samples, error, f"{share:.4f}", delta))
    soft = {}
    for gamma, (_, samples, error, _, share) in published.HARD_AND_SOFT.items():
        label = "hard" if gamma is None else f"gamma = {gamma:g}"
        instance = instances.hard_and_soft(gamma)
        soft[gamma] = Row(label, instance, samples, error, f"{share:.3f}", published.HARD_AND_SOFT_DELTA)
    return [*found, *soft.values(), soft[0.5]._replace(risk=0.1), soft[1.0]._replace(risk=0.15)]


def compared(row: Row, seeds: int, replications: int) -> str:
    """Return a line of the table."""
    from evenhand.paper import methods, published

    procedure = methods.fixed_confidence(row.risk)[methods.DEFAULT]
    runs = [eh.simulate(*row.instance, procedure, replications, seed=seed) for seed in range(1, seeds + 1)]
    samples = np.concatenate([run.samples for run in runs])
    errors = sum(int((~run.correct).sum()) for run in runs)
    cells = (
        row.label,
        f"{row.risk:g}",
        f"{row.samples:,}",
        f"{samples.mean():,.1f}",
        methods.against(samples, row.samples, row.error),
        f"{errors * published.REPLICATIONS / len(samples):.1f}",
        f"at most {methods.errors_printed(row.share)}",
        f"{methods.less_right(errors, len(samples), row.share):.3f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

"""Compare an NVIDIA GPU with the CPU on studies of every structure.

    python -m benchmarks.gpu_studies [REPLICATIONS]

The studies are those of tests/compile/studies.py: every pair of a family, requirement, sampling rule,
stopping rule and mode occurs; and lag, dropout and batches, requirements beside a control, screening,
guard-rails, costs, indifference and linear bets. Prints the studies whose decisions differ, and a last line
with the counts.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

import numpy as np

import evenhand as eh
from benchmarks.gpu import EQUAL, SEED

REPLICATIONS = 200


def main() -> None:
    """Compare all studies, several at once, and print the result."""
    replications = int(sys.argv[1]) if len(sys.argv) > 1 else REPLICATIONS
    names = list(_studies())
    processes = min(len(names), max((os.cpu_count() or 2) - 2, 1))
    equal, runs, refused = 0, 0, 0
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        jobs = [(name, replications) for name in names]
        for name, same, why in pool.imap_unordered(compared, jobs):
            if same is None:
                refused += 1
                print(f"refused: {name}: {why}", flush=True)
                continue
            runs += replications
            equal += same
            if same < replications:
                print(f"{replications - same} of {replications} runs differ: {name}", flush=True)
    print(f"{equal:,} of {runs:,} runs of {len(names) - refused} studies have the decisions of the CPU")


def compared(job: tuple[str, int]) -> tuple[str, int | None, str]:
    """Return the name of a study and how many runs are equal, or None and why it was refused."""
    name, replications = job
    study = _studies()[name]
    try:
        gpu = eh.simulate(study, replications=replications, seed=SEED, workers=1, device="cuda")
    except eh.BadInput as refusal:
        return name, None, str(refusal)
    cpu = eh.simulate(study, replications=replications, seed=SEED, workers=1)
    same = np.all([getattr(gpu.rows, field) == getattr(cpu.rows, field) for field in EQUAL], axis=0)
    return name, int(np.count_nonzero(same)), ""


def _studies() -> dict[str, eh.Study]:
    from tests.compile import studies

    return studies.quick() | studies.covering()


if __name__ == "__main__":
    main()

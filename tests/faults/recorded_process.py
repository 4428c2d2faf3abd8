"""A writer to be recorded: asks and tells, and notes in the file `acks` every answer it got."""

from __future__ import annotations

import os
import sys

from evenhand.live.experiment import Experiment
from tests.live.example_experiments import even


def main(address: str, acks: str, pairs: int) -> None:
    noted = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with Experiment.open(address) as trial:
        for _ in range(pairs):
            ask = trial.ask(1)[0]
            os.write(noted, f"asked {ask.ticket}\n".encode())
            trial.tell(ask, even(ask))
            os.write(noted, f"told {ask.ticket}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

"""How the experiments in this folder were made, by evenhand 0.1.0 at de18d5a; never make them again.

    collapsed   its evidence, bounded as that version did, is -8.3 although the data are as clear as can be
    unproven    kaufmann-koolen with an unknown variance, which is refused today
    bounded     made at commit fcaea6b, when the evidence of bounded outcomes was a mixture unless asked for

All must open, be derived again event by event, and say what is the matter.
"""

from __future__ import annotations

import evenhand as eh
from evenhand.live.experiment import Experiment
from tests.live.example_experiments import create

LEVELS = {"a": 6.0, "b": 5.0}
MEANS = {"a": (620_000, 600_000, 610_000), "d": (550_000, 560_000, 570_000)}


def collapsed(address: str) -> Experiment:
    """One outcome is worth a million: thirteen are as many as the first version could not bound."""
    groups = {"x": 0.4, "y": 0.3, "z": 0.3}
    study = eh.Problem(["a", "d"], groups, eh.Binomial(1_000_000), eh.Floors(500_000))
    trial = create(address, study=study, procedure=eh.Procedure("uniform", delta=0.05))
    for number in range(13):
        [ask] = trial.ask(1)
        trial.tell(ask, MEANS[ask.policy]["xyz".index(ask.group or "")] + (number * 37) % 41 - 20)
    return trial


def unproven(address: str) -> Experiment:
    """Undecided, with one ticket out."""
    study = eh.Problem(["a", "b"], {"x": 1.0}, eh.GaussianUnknown(), eh.Floors(0.0))
    procedure = eh.Procedure("uniform", stopping="kaufmann-koolen", delta=0.05)
    trial = create(address, study=study, procedure=procedure)
    for number in range(15):
        [ask] = trial.ask(1)
        trial.tell(ask, (0.25 if ask.policy == "a" else -0.25) + ((number * 29) % 17 - 8) / 20)
    trial.ask(1, worker="w")
    return trial


def bounded(address: str) -> Experiment:
    """Undecided by mixtures; linear bets would have decided."""
    study = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Bounded(0.0, 10.0), eh.Floors(2.0))
    trial = create(address, study=study, procedure=eh.Procedure(delta=0.05))
    for number in range(60):
        [ask] = trial.ask(1)
        trial.tell(ask, LEVELS[ask.policy] + ((number * 29) % 17 - 8) / 8)
    return trial

"""Before the first request needs them: kernels loaded, helpers started. Off the request path."""

from __future__ import annotations

import json
import logging
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool

from evenhand.app.service import tasks
from evenhand.app.service.studio import Studio
from evenhand.errors import EvenhandError

log = logging.getLogger("evenhand.service")


def warm(studio: Studio) -> None:
    """Load what asking, telling and drawing call; a request that comes meanwhile waits for its own part."""
    try:
        drawing = studio.quick.start(tasks.warm_drawing)
        load_kernels()
        drawing.result()  # however long the compiler takes
    except (EvenhandError, CancelledError, BrokenProcessPool) as problem:
        log.info(json.dumps({"event": "warming ended early", "says": str(problem)}))  # stopped meanwhile


def load_kernels() -> None:
    """A small experiment in memory, from asking to status, once."""
    from evenhand.live.experiment import Experiment
    from evenhand.model.constraints import Floors
    from evenhand.model.families import Bernoulli
    from evenhand.model.problem import Problem
    from evenhand.procedure.spec import Procedure

    problem = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Bernoulli(), Floors(0.3))
    with Experiment.create(":memory:", problem, Procedure(initial=1), seed=1) as trial:
        for number in range(8):
            ask = trial.ask()
            assert ask is not None
            trial.tell(ask, number % 2)
        trial.status()

"""Before the first request needs them: kernels loaded, helpers started. Off the request path."""

from __future__ import annotations

import json
import logging
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool

from evenhand.app.kernels import load_live_kernels
from evenhand.app.service import tasks
from evenhand.app.service.studio import Studio
from evenhand.errors import EvenhandError

log = logging.getLogger("evenhand.service")


def warm(studio: Studio) -> None:
    """Load what asking, telling and drawing call; a request that comes meanwhile waits for its own part."""
    try:
        drawing = studio.quick.start(tasks.warm_drawing)
        load_live_kernels()
        drawing.result()  # however long the compiler takes
    except (EvenhandError, CancelledError, BrokenProcessPool) as problem:
        log.info(json.dumps({"event": "warming ended early", "says": str(problem)}))  # stopped meanwhile

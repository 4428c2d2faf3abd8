"""A sweep in a process of its own, slow enough to be killed: python -m tests.simulation.slow_sweep STORE."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from evenhand.simulation.executors import Serial
from evenhand.simulation.sweep import sweep
from tests.simulation.test_sweep import REPLICATIONS, SHARD, STUDIES


class Slow(Serial):
    """A pause after every piece."""

    def run(self, task: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for pair in super().run(task, jobs):
            yield pair
            time.sleep(0.2)


if __name__ == "__main__":
    sweep(STUDIES, REPLICATIONS, 3, sys.argv[1], Slow(), shard=SHARD)

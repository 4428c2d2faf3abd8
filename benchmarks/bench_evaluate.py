"""Evaluating models: what `evaluate` adds to a call, at 64 calls at once.

    python -m benchmarks evaluate

Four coroutine functions answer after 20 ms. The time that `evaluate` adds is the processor time of the whole
run, with its decisions and its journal on disk, over the number of calls: the functions themselves only wait.
The rule stops no run here, since two candidates are equal, so that 8,000 calls are made.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import evenhand as eh
from benchmarks.rows import Row, less

ITEMS, CONCURRENCY, WAIT = 2_000, 64, 0.02


def rows() -> Iterator[Row]:
    added, calls = seconds_per_call(ITEMS)
    yield less(
        f"evaluate: processor time per call, {calls:,} calls, {CONCURRENCY} at once",
        1e3 * added,
        2.0,
        "ms",
        1.0,
    )


def seconds_per_call(items: int) -> tuple[float, int]:
    """Return the processor time of a call, and the number of calls."""
    pool = [{"group": "ab"[n % 2], "n": n} for n in range(items)]
    candidates = {name: _candidate(k) for k, name in enumerate(("first", "second", "third", "fourth"))}
    _run(candidates, pool[:200])  # compiles
    begun = time.process_time()
    result = _run(candidates, pool)
    return (time.process_time() - begun) / result.calls, result.calls


def _run(candidates: dict[str, Any], pool: list[dict[str, Any]]) -> eh.Evaluation:
    with tempfile.TemporaryDirectory() as folder:
        return eh.evaluate(
            candidates, pool, lambda output, item: float(output), at_least=0.5, family=eh.Bernoulli(),
            concurrency=CONCURRENCY, journal=Path(folder, "calls.jsonl"), seed=1,
        )  # fmt: skip


def _candidate(k: int) -> Any:
    async def answer(item: dict[str, Any]) -> int:
        await asyncio.sleep(WAIT)
        return int(
            (item["n"] * 7919) % 10 > k // 2
        )  # the first two agree on every item, and so do the others

    return answer
